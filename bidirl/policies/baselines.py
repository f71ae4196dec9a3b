"""Admission policies without a model: never, always, and one direction only."""

from __future__ import annotations

from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import Decision, LeaseView, Opportunity
from bidirl.core.topology import Direction
from bidirl.policies.model_guided import ModelGuided
from bidirl.policies.rules import nothing_to_lend, refuse


class NoBorrow(AdmissionPolicy):
    """Never admits: two fixed pools, the disaggregated baseline."""

    def decide(self, opportunity: Opportunity) -> Decision:
        """Refuse."""
        return refuse("borrowing_is_off")


class Opportunistic(AdmissionPolicy):
    """Admits whenever something is idle and something is missing, whatever a switch costs."""

    def decide(self, opportunity: Opportunity) -> Decision:
        """Admit, unless nothing is idle or nothing is missing."""
        return nothing_to_lend(opportunity) or Decision(True, "idle_and_missing")


class OneDirection(AdmissionPolicy):
    """Leaves one direction to ``inner`` and refuses the other.

    Args:
        direction: the direction that may borrow.
        inner: decides in that direction; :class:`ModelGuided` by default.
    """

    def __init__(self, *, direction: Direction, inner: AdmissionPolicy | None = None) -> None:
        self.direction = direction
        self.inner = inner if inner is not None else ModelGuided()

    def __repr__(self) -> str:
        """Shows the stack."""
        return f"{type(self).__name__}({self.inner!r})"

    def decide(self, opportunity: Opportunity) -> Decision:
        """Ask ``inner`` in the permitted direction."""
        if opportunity.direction is not self.direction:
            return refuse("direction_is_off")
        return self.inner.decide(opportunity)

    def release(self, lease: LeaseView, opportunity: Opportunity | None) -> bool:
        """As ``inner`` says."""
        return self.inner.release(lease, opportunity)


class RolloutOnly(OneDirection):
    """Only rollouters borrow ("without T-on-R").

    Args:
        inner: decides; :class:`ModelGuided` by default.
    """

    def __init__(self, *, inner: AdmissionPolicy | None = None) -> None:
        super().__init__(direction=Direction.ROLLOUTER_ON_TRAINPOOL, inner=inner)


class TrainOnly(OneDirection):
    """Only trainers borrow ("without R-on-T").

    Args:
        inner: decides; :class:`ModelGuided` by default.
    """

    def __init__(self, *, inner: AdmissionPolicy | None = None) -> None:
        super().__init__(direction=Direction.TRAINER_ON_ROLLPOOL, inner=inner)
