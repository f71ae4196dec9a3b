"""The paper's admission rules exactly: Eq. (5) for rollouters, Algorithm 2 for trainers."""

from __future__ import annotations

from typing import Literal

from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import Decision, Opportunity
from bidirl.policies.rules import (
    compare,
    drain_prefix,
    model_ready,
    nothing_to_lend,
    refuse,
    rollout_direction,
    updates_actor,
    without_primaries,
)

ColdStart = Literal["refuse", "admit"]


class ModelGuided(AdmissionPolicy):
    """Admits a borrow if and only if it is predicted to save more seconds than it costs; a tie refuses.

    Refuses during calibration, so that the models see both pools at work without leases.

    Args:
        cold_start: the verdict while the stage-time model of the borrowed role is not ready.
    """

    def __init__(self, *, cold_start: ColdStart = "refuse") -> None:
        self.cold_start = cold_start

    def decide(self, opportunity: Opportunity) -> Decision:
        """Eq. (5) or Algorithm 2, by direction."""
        settled = nothing_to_lend(opportunity) or without_primaries(opportunity)
        if settled is not None:
            return settled
        if opportunity.calibrating:
            return refuse("calibrating")
        if not model_ready(opportunity):
            return Decision(self.cold_start == "admit", "cold_start")
        return self.predict(opportunity)

    def predict(self, opportunity: Opportunity) -> Decision:
        """The rule itself, once something is idle, something is missing and the model is ready."""
        if rollout_direction(opportunity):
            return rollouter_on_trainpool(opportunity)
        return trainer_on_rollpool(opportunity)


def rollouter_on_trainpool(opportunity: Opportunity) -> Decision:
    """Eq. (5): admit iff M_r(Q_r, d_p) − M_r(Q_r, d_p + d_a) > C_in + C_out."""
    model, work, cost = opportunity.rollout_model, opportunity.rollout_work, opportunity.switch_cost
    alone = model.predict(work, opportunity.primary_replicas)
    shared = model.predict(work, opportunity.primary_replicas + opportunity.auxiliary_replicas)
    numbers = {"primary_only_seconds": alone, "shared_seconds": shared}
    return compare(alone - shared, cost.in_seconds + cost.out_seconds, numbers)


def trainer_on_rollpool(opportunity: Opportunity) -> Decision:
    """Algorithm 2: admit iff C_in + M_t(U', d_p + d_a) + C_out + C_grad < M_t(U, d_p), U' = DrainPrefix(U, C_in).

    C_grad is due only if U' holds chunks of the actor update, the only ones that leave gradients on auxiliaries.
    """
    model, work, cost = opportunity.trainer_model, opportunity.trainer_work, opportunity.switch_cost
    primaries = opportunity.primary_replicas
    left = drain_prefix(work, cost.in_seconds, model, primaries)
    no_borrow = model.predict(work, primaries)
    if not left.chunks:
        return Decision(False, "done_before_switch_in", numbers={"no_borrow_seconds": no_borrow})
    shared = model.predict(left, primaries + opportunity.auxiliary_replicas)
    grad = cost.grad_seconds if updates_actor(left) else 0.0
    numbers = {
        "no_borrow_seconds": no_borrow,
        "borrow_seconds": cost.in_seconds + shared + cost.out_seconds + grad,
        "drained_chunks": float(len(work.chunks) - len(left.chunks)),
    }
    return compare(no_borrow - shared, cost.in_seconds + cost.out_seconds + grad, numbers)
