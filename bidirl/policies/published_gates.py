"""Two published one-direction gates (verl), as we read them, weaknesses intact. The schedule discipline only.

Both let idle trainers help rollout and never the reverse. Kept on purpose: an unknown cost or benefit admits; the time
per sample is a whole-run average that never decays; scaling is linear in replicas; re-prefill and the delayed weight
update cost nothing; decisions fall at step ends only.
"""

from __future__ import annotations

from math import isnan

from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import Decision, Opportunity
from bidirl.policies.rules import compare, nothing_to_lend, refuse, rollout_direction

_WINDOW = 3
"""Switches that the moving average spans."""


class _RolloutGate(AdmissionPolicy):
    """Refusals that both gates share: other direction, nothing to lend, not a step end."""

    def __init__(self, *, causes: list[str] | None = None) -> None:
        self.causes = causes

    def decide(self, opportunity: Opportunity) -> Decision:
        """Compare an averaged benefit with an averaged cost."""
        if not rollout_direction(opportunity):
            return refuse("direction_is_off")
        if self.causes is not None and opportunity.cause not in self.causes:
            return refuse("not_a_step_end")
        return nothing_to_lend(opportunity) or self._gate(opportunity)

    def _gate(self, opportunity: Opportunity) -> Decision:
        raise NotImplementedError


class VerlDynamicSchedule(_RolloutGate):
    """Gate A: missing samples × seconds per sample > mean of the last three (activate + deactivate).

    Args:
        causes: events at which it decides; ``None``: at every event, which is kinder than the original.
        prior_sample_seconds: seconds per sample until one has finished.
        prior_switch_seconds: switch cost until one was measured.
    """

    def __init__(
        self,
        *,
        causes: list[str] | None = None,
        prior_sample_seconds: float = 1000.0,
        prior_switch_seconds: float = 10.0,
    ) -> None:
        super().__init__(causes=causes)
        self.prior_sample_seconds = prior_sample_seconds
        self.prior_switch_seconds = prior_switch_seconds

    def _gate(self, opportunity: Opportunity) -> Decision:
        seconds = opportunity.history.sample_seconds
        per_sample = self.prior_sample_seconds if isnan(seconds) else seconds
        recent = opportunity.history.recent_switch_seconds[-_WINDOW:]
        cost = sum(recent) / len(recent) if recent else self.prior_switch_seconds
        return compare(opportunity.rollout_work.num_sequences * per_sample, cost, {"sample_seconds": per_sample})


class VerlSeparateAsync(_RolloutGate):
    """Gate B: remaining × seconds per sample × (1 − d_p/(d_p + d_a)) > mean switch cost + adaptive threshold.

    The threshold rises with every lease that did not pay and falls with every one that did. It has no floor and no
    ceiling, so it winds up. Unknown cost or benefit admits.

    Args:
        causes: events at which it decides; ``None``: at every event, which is kinder than the original.
        step_up_seconds: added to the threshold per lease that did not pay.
        step_down_seconds: taken off per lease that did.
    """

    def __init__(
        self, *, causes: list[str] | None = None, step_up_seconds: float = 1.0, step_down_seconds: float = 1.0
    ) -> None:
        super().__init__(causes=causes)
        self.step_up_seconds = step_up_seconds
        self.step_down_seconds = step_down_seconds

    def _gate(self, opportunity: Opportunity) -> Decision:
        history = opportunity.history
        recent = history.recent_switch_seconds[-_WINDOW:]
        if not recent or isnan(history.sample_seconds):
            return Decision(True, "unknown_admits")
        standalone = opportunity.primary_replicas / (opportunity.primary_replicas + opportunity.auxiliary_replicas)
        benefit = opportunity.rollout_work.num_sequences * history.sample_seconds * (1.0 - standalone)
        threshold = self.step_up_seconds * history.lost - self.step_down_seconds * history.paid
        return compare(benefit, sum(recent) / len(recent) + threshold, {"threshold_seconds": threshold})
