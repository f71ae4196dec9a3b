"""Borrowing at random: for showing that learning does not depend on it, and for tests of the scheduler."""

from __future__ import annotations

import numpy as np

from bidirl.core.errors import ConfigError
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import Decision, LeaseView, Opportunity
from bidirl.policies.rules import nothing_to_lend, refuse


class RandomLeases(AdmissionPolicy):
    """Admits whenever something can be lent, with a probability, and revokes open leases at random.

    Args:
        seed: of the coins.
        admit_probability: that an opportunity is taken; 1 always borrows, in both directions.
        revoke_probability: that an open lease is ended at an event, work left or not.
    """

    def __init__(self, *, seed: int = 0, admit_probability: float = 1.0, revoke_probability: float = 0.1) -> None:
        for name, value in (("admit_probability", admit_probability), ("revoke_probability", revoke_probability)):
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value}: it must be from 0 to 1")
        self.seed = seed
        self.admit_probability = admit_probability
        self.revoke_probability = revoke_probability
        self._generator = np.random.default_rng(seed)

    def __repr__(self) -> str:
        """With its arguments."""
        return f"RandomLeases(seed={self.seed}, {self.admit_probability:g}, {self.revoke_probability:g})"

    def decide(self, opportunity: Opportunity) -> Decision:
        """A coin, where there is something to lend."""
        nothing = nothing_to_lend(opportunity)
        if nothing is not None:
            return nothing
        return Decision(True, "coin") if self._generator.random() < self.admit_probability else refuse("coin")

    def release(self, lease: LeaseView, opportunity: Opportunity | None) -> bool:
        """Another coin."""
        return bool(self._generator.random() < self.revoke_probability)
