"""Our own admission rule: counts what really delays either stage, and releases early. No oracle.

With T_no = M(d_p) and T_d = M(d_p + d_a), it differs from the paper's rules as follows.

*Rollouters on the TrainPool.* The primaries go on while auxiliaries switch in and out (Eq. 5 counts them idle), and
groups that move are prefilled again. A lease that helps for x seconds does the work of x · T_no / T_d primary seconds,
so it saves x · (T_no / T_d − 1), with x = (T_no − C_in − C_out) · T_d / T_no if both sides end together. To make that
true the lease is released once the primaries alone need no longer than the switch-out, which then overlaps with
waiting.

*Trainers on the RollPool.* The optimizer step waits for the merge, not for the switch-out: C_out delays the lender
only, by D = C_out − (optimizer step and export), since idle rollouters get work when the next version is out. D is
charged in full while s < 1, where the next batch must be generated after that. From s = 1 on a finished batch is
already waiting, so D counts only as far as the coming rollout would then outlast the coming training; and in
proportion to the lent share of the rollouters. Rollouters that hit the staleness bound fall idle one by one, and one
more trainer alone rarely pays for the merge, which is paid once for all: a decision is made for those offered and for
some of those that will follow, and the merge is charged to the first lease of a batch. These leases are never
released early: a chunk that is pulled always helps.
"""

from __future__ import annotations

from dataclasses import replace
from math import isnan

from bidirl.core.opportunity import Decision, LeaseView, Opportunity
from bidirl.core.work import RolloutWork
from bidirl.policies.model_guided import ColdStart, ModelGuided
from bidirl.policies.rules import compare, drain_prefix, rollout_direction, updates_actor


class PricedModelGuided(ModelGuided):
    """Wins where switches are long against the window, or the lender can wait; loses where predictions are poor.

    An unknown ``lender_wait_seconds`` charges C_out in full, and falls back to Eq. (5) for rollouters.

    Args:
        cold_start: the verdict while the stage-time model of the borrowed role is not ready.
        relative_margin: share of the predicted time without borrowing that must be saved beyond the costs; guards
            against model error.
        switch_margin: share of C_in + C_out that rollouters must save beyond the costs. In a tail of few long
            groups the prediction is as good as its worst length, and a lease too short to finish a group only
            interrupts it.
        early_release: whether to end rollouter leases before the batch is ready.
        followers: share of the rollouters still at work that is expected to be lent soon after, 0 to 1.
    """

    def __init__(
        self,
        *,
        cold_start: ColdStart = "refuse",
        relative_margin: float = 0.02,
        switch_margin: float = 0.1,
        early_release: bool = True,
        followers: float = 0.5,
    ) -> None:
        super().__init__(cold_start=cold_start)
        self.followers = followers
        self.relative_margin = relative_margin
        self.switch_margin = switch_margin
        self.early_release = early_release

    def predict(self, opportunity: Opportunity) -> Decision:
        """Admit iff the critical seconds saved exceed the margin and the price of the lender's delay."""
        if rollout_direction(opportunity):
            return self._price_rollout(opportunity)
        return self._price_training(opportunity)

    def _price_rollout(self, opportunity: Opportunity) -> Decision:
        wait, cost = opportunity.lender_wait_seconds, opportunity.switch_cost
        if isnan(wait):
            return super().predict(opportunity)
        alone, shared = _rollout_seconds(opportunity, opportunity.auxiliary_replicas)
        switches = cost.in_seconds + cost.out_seconds
        numbers = {"primary_only_seconds": alone, "shared_seconds": shared}
        if alone <= 0.0 or shared <= 0.0:
            return Decision(False, "done_before_switch_in", numbers=numbers)
        if self.early_release:
            helping = max(0.0, min((alone - switches) * shared / alone, wait - switches))
            saved = helping * (alone / shared - 1.0)
        else:
            helping = max(0.0, alone - cost.in_seconds) * shared / alone
            saved = helping * (alone / shared - 1.0) - cost.out_seconds
        numbers["helping_seconds"] = helping
        return compare(saved, max(self.relative_margin * alone, self.switch_margin * switches), numbers)

    def _price_training(self, opportunity: Opportunity) -> Decision:
        model, work, cost = opportunity.trainer_model, opportunity.trainer_work, opportunity.switch_cost
        primaries, running = opportunity.primary_replicas, opportunity.chunk_seconds_running
        alone = running + model.predict(work, primaries)
        left = drain_prefix(work, cost.in_seconds - running, model, primaries)
        if not left.chunks:
            return Decision(False, "done_before_switch_in", numbers={"no_borrow_seconds": alone})
        merge = cost.grad_seconds if updates_actor(left) and not opportunity.borrowed_replicas else 0.0
        joining = self._joining(opportunity)
        borrowed = max(cost.in_seconds, running) + model.predict(left, primaries + joining)
        delay = self._lender_delay_seconds(opportunity, joining, alone, borrowed + merge)
        numbers = {"no_borrow_seconds": alone, "borrow_seconds": borrowed + merge, "lender_delay_seconds": delay}
        return compare(alone - borrowed, merge + delay + self.relative_margin * alone, numbers)

    def _joining(self, opportunity: Opportunity) -> int:
        """Replicas that are decided on: those offered, and ``followers`` of the rollouters that are still at work."""
        offered = opportunity.auxiliary_replicas
        later = max(0, opportunity.lender_replicas - opportunity.borrowed_replicas - offered)
        return offered + int(self.followers * later)

    @staticmethod
    def _lender_delay_seconds(opportunity: Opportunity, joining: int, alone: float, borrowed: float) -> float:
        """Critical seconds by which the lender starts later because it has to switch out first."""
        out, wait = opportunity.switch_cost.out_seconds, opportunity.lender_wait_seconds
        if isnan(wait):
            return out
        publish = max(0.0, wait - alone)
        delay = max(0.0, out - publish)
        if opportunity.staleness_bound < 1.0 or not opportunity.rollout_model.ready:
            return delay
        rollouters = max(opportunity.lender_replicas, joining)
        rollout = opportunity.rollout_model.predict(opportunity.rollout_work, rollouters)
        return joining / rollouters * min(delay, max(0.0, delay + rollout - borrowed - publish))

    def release(self, lease: LeaseView, opportunity: Opportunity | None) -> bool:
        """End a rollouter lease when the primaries alone need no longer than the switch-out.

        Before that, each second of help shortens the rest; after it, help comes too late to pay for a later switch-out.
        ``opportunity.primary_replicas`` are those without this lease.
        """
        if not self.early_release or opportunity is None or opportunity.primary_replicas <= 0:
            return False
        if not rollout_direction(opportunity) or not opportunity.rollout_model.ready:
            return False
        out = opportunity.switch_cost.out_seconds
        if opportunity.lender_wait_seconds <= out:
            return True
        alone, shared = _rollout_seconds(opportunity, lease.auxiliary_replicas)
        if alone <= 0.0:
            return False
        left = max((alone - out) * (1.0 - shared / alone), alone - shared - out)
        return left <= self.relative_margin * alone


def _rollout_seconds(opportunity: Opportunity, auxiliaries: int) -> tuple[float, float]:
    """(T_no, T_d); groups that move are prefilled again."""
    primaries = opportunity.primary_replicas
    together, work = primaries + auxiliaries, opportunity.rollout_work
    moved = _moved(work, auxiliaries / together)
    return opportunity.rollout_model.predict(work, primaries), opportunity.rollout_model.predict(moved, together)


def _moved(work: RolloutWork, share: float) -> RolloutWork:
    """``work`` when ``share`` of the sequences have to be prefilled again elsewhere."""
    resident = max(0.0, work.num_sequences * work.context_tokens - work.prefill_tokens)
    return replace(work, prefill_tokens=work.prefill_tokens + share * resident)
