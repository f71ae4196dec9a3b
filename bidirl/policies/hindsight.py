"""Clairvoyant parts: they act on what only a finished run can tell, and exist to measure regret against."""

from __future__ import annotations

from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import Decision, LeaseView, Opportunity
from bidirl.policies.baselines import NoBorrow
from bidirl.policies.rules import refuse, rollout_direction


class PerDirection(AdmissionPolicy):
    """One policy for each direction.

    Args:
        rollout: decides whether rollouters borrow; :class:`NoBorrow` by default.
        training: decides whether trainers borrow; likewise.
    """

    def __init__(self, *, rollout: AdmissionPolicy | None = None, training: AdmissionPolicy | None = None) -> None:
        self.rollout = rollout if rollout is not None else NoBorrow()
        self.training = training if training is not None else NoBorrow()

    def __repr__(self) -> str:
        """Shows the stack."""
        return f"PerDirection(rollout={self.rollout!r}, training={self.training!r})"

    def decide(self, opportunity: Opportunity) -> Decision:
        """Ask the policy of the direction."""
        return (self.rollout if rollout_direction(opportunity) else self.training).decide(opportunity)

    def release(self, lease: LeaseView, opportunity: Opportunity | None) -> bool:
        """Ask the policy of the direction."""
        inner = self.rollout if lease.direction.value.startswith("rollouter") else self.training
        return inner.release(lease, opportunity)


class HindsightPlan(AdmissionPolicy):
    """CLAIRVOYANT, not for use: ``inner``, but refusing in the steps that a search over finished runs chose.

    Such a search tries what a policy cannot: it runs the whole job with its real lengths and costs, again and again.

    Args:
        inner: decides elsewhere.
        refused_rollout: versions at which rollouters do not borrow.
        refused_training: versions at which trainers do not borrow.
    """

    def __init__(
        self,
        *,
        inner: AdmissionPolicy,
        refused_rollout: list[int] | None = None,
        refused_training: list[int] | None = None,
    ) -> None:
        self.inner = inner
        self.refused_rollout = list(refused_rollout or ())
        self.refused_training = list(refused_training or ())

    def __repr__(self) -> str:
        """Shows the plan."""
        return f"HindsightPlan({self.inner!r}, not R-on-T: {self.refused_rollout}, not T-on-R: {self.refused_training})"

    def decide(self, opportunity: Opportunity) -> Decision:
        """Refuse where the plan says so."""
        refused = self.refused_rollout if rollout_direction(opportunity) else self.refused_training
        return refuse("hindsight") if opportunity.version in refused else self.inner.decide(opportunity)

    def release(self, lease: LeaseView, opportunity: Opportunity | None) -> bool:
        """As ``inner`` says."""
        return self.inner.release(lease, opportunity)
