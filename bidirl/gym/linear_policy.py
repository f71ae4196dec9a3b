"""A learned admission policy: a linear score of the environment's features."""

from __future__ import annotations

import numpy as np

from bidirl.core.errors import ConfigError
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import Decision, Opportunity
from bidirl.gym.features import FEATURES, features
from bidirl.policies.rules import nothing_to_lend, refuse, without_primaries


class LinearPolicy(AdmissionPolicy):
    """Admits if and only if bias + weights · features is above 0. Refuses during calibration.

    Args:
        weights: one per name in ``bidirl.gym.features.FEATURES``; all 0 without.
        bias: added to the score; 0 and zero weights refuse everything.
    """

    def __init__(self, *, weights: list[float] | None = None, bias: float = 0.0) -> None:
        self.weights = [0.0] * len(FEATURES) if weights is None else list(weights)
        if len(self.weights) != len(FEATURES):
            raise ConfigError(f"weights has {len(self.weights)} numbers: give {len(FEATURES)} ({', '.join(FEATURES)})")
        self.bias = bias

    def __repr__(self) -> str:
        """Shows the class; the weights are in the config."""
        return f"{type(self).__name__}()"

    def decide(self, opportunity: Opportunity) -> Decision:
        """The sign of the score."""
        settled = settled_without_asking(opportunity)
        if settled is not None:
            return settled
        score = self.bias + float(np.dot(self.weights, features(opportunity).astype(np.float64)))
        return Decision(score > 0.0, "score", numbers={"score": score})


def settled_without_asking(opportunity: Opportunity) -> Decision | None:
    """The decision where there is no choice: nothing to lend, no primary, or calibration."""
    settled = nothing_to_lend(opportunity) or without_primaries(opportunity)
    if settled is None and opportunity.calibrating:
        return refuse("calibrating")
    return settled
