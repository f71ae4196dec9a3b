"""Our own admission rule: counts what really delays either stage, prices the lender's delay, and releases early.

Against the paper's rules it differs in four points.

* The primaries keep working while auxiliaries switch in and out, in both directions (Eq. 5 counts them idle). With
  T_no = M(d_p) and T_d = M(d_p + d_a), a lease that is helping for x seconds does the work of x · T_no / T_d primary
  seconds, so it saves x · (T_no / T_d − 1), and x = (T_no − C_in − C_out) · T_d / T_no if both sides end together.
* Groups that move are prefilled again; T_d pays for it.
* The lease must be gone when the lender has work of its own: x ≤ lender_wait − C_in − C_out. If the lender's own work
  then outlasts the borrower's anyway, the borrower is not critical and only the seconds by which it is count.
* It releases once the primaries alone need no longer than the switch-out, which then overlaps with waiting.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, isnan

from bidirl.core.opportunity import Decision, LeaseView, Opportunity
from bidirl.core.work import RolloutWork
from bidirl.policies.model_guided import ColdStart, ModelGuided
from bidirl.policies.rules import compare, rollout_direction


class PricedModelGuided(ModelGuided):
    """Wins where leases are short against the switch, or the lender is waited for; loses where predictions are poor.

    An unknown ``lender_wait_seconds`` falls back to the paper's rule, which charges both switches in full.

    Args:
        cold_start: the verdict while the stage-time model of the borrowed role is not ready.
        relative_margin: share of the predicted time without borrowing that must be saved beyond the costs; guards
            against model error.
        early_release: whether to end leases before the batch is ready.
    """

    def __init__(
        self, *, cold_start: ColdStart = "refuse", relative_margin: float = 0.02, early_release: bool = True
    ) -> None:
        super().__init__(cold_start=cold_start)
        self.relative_margin = relative_margin
        self.early_release = early_release

    def predict(self, opportunity: Opportunity) -> Decision:
        """Admit iff the critical seconds saved exceed the margin."""
        paper = super().predict(opportunity)
        wait = opportunity.lender_wait_seconds
        if isnan(wait):
            return paper
        cost = opportunity.switch_cost
        alone, shared, overrun = self._stage_seconds(opportunity)
        numbers = dict(paper.numbers)
        if alone <= 0.0 or shared <= 0.0:
            return Decision(False, "done_before_switch_in", numbers=numbers)
        switches = cost.in_seconds + cost.out_seconds
        grad = 0.0 if rollout_direction(opportunity) else cost.grad_seconds
        helping = max(0.0, min((alone - switches - overrun) * shared / alone, wait - switches - overrun))
        saved = helping * (alone / shared - 1.0) - grad
        if alone - (paper.benefit_seconds - paper.cost_seconds) <= wait:  # a lease to the very end fits as well
            saved = max(saved, paper.benefit_seconds - paper.cost_seconds)
        if isfinite(wait):
            lender = self._lender_seconds(opportunity)
            numbers["lender_seconds"] = lender
            saved = min(saved, max(0.0, alone - (wait + lender)))
        numbers["helping_seconds"] = helping
        return compare(saved, self.relative_margin * alone, numbers)

    def release(self, lease: LeaseView, opportunity: Opportunity | None) -> bool:
        """End the lease when the primaries alone need no longer than the switch-out, or the lender needs its devices.

        Before that, each second of help shortens the rest; after it, help comes too late to pay for a later
        switch-out. A lease that hardly helps (one long sequence is left) ends as well.
        ``opportunity.primary_replicas`` are those without this lease. Chunks that run now are not in the opportunity,
        so with few huge chunks it can release too early.
        """
        if not self.early_release or opportunity is None or opportunity.primary_replicas <= 0:
            return False
        out = opportunity.switch_cost.out_seconds
        if opportunity.lender_wait_seconds <= out:
            return True
        if not self._ready(opportunity):
            return False
        primaries, together = opportunity.primary_replicas, lease.auxiliary_replicas + opportunity.primary_replicas
        if rollout_direction(opportunity):
            model, work = opportunity.rollout_model, opportunity.rollout_work
            back = _moved(work, lease.auxiliary_replicas / together)
            alone, shared, overrun = model.predict(back, primaries), model.predict(work, together), 0.0
        else:
            trainer, chunks = opportunity.trainer_model, opportunity.trainer_work
            alone, shared = trainer.predict(chunks, primaries), trainer.predict(chunks, together)
            overrun = trainer.predict(chunks, len(chunks.chunks))
        if alone <= 0.0:
            return False
        help_left = max((alone - out - overrun) * (1.0 - shared / alone), alone - shared - out)
        return help_left <= self.relative_margin * alone

    def _ready(self, opportunity: Opportunity) -> bool:
        return (opportunity.rollout_model if rollout_direction(opportunity) else opportunity.trainer_model).ready

    def _stage_seconds(self, opportunity: Opportunity) -> tuple[float, float, float]:
        """(T_no, T_d, seconds by which a lease may overrun its release: a chunk runs to completion)."""
        primaries = opportunity.primary_replicas
        everyone = primaries + opportunity.auxiliary_replicas
        if rollout_direction(opportunity):
            model, work = opportunity.rollout_model, opportunity.rollout_work
            moved = opportunity.auxiliary_replicas / everyone
            return model.predict(work, primaries), model.predict(_moved(work, moved), everyone), 0.0
        trainer, chunks = opportunity.trainer_model, opportunity.trainer_work
        alone, shared = trainer.predict(chunks, primaries), trainer.predict(chunks, everyone)
        return alone, shared, trainer.predict(chunks, len(chunks.chunks))

    def _lender_seconds(self, opportunity: Opportunity) -> float:
        """The lender's own coming work; its replicas are taken to be as many as the auxiliaries on its devices."""
        if rollout_direction(opportunity):
            return opportunity.trainer_model.predict(opportunity.trainer_work, opportunity.auxiliary_replicas)
        return opportunity.rollout_model.predict(opportunity.rollout_work, opportunity.auxiliary_replicas)


def _moved(work: RolloutWork, share: float) -> RolloutWork:
    """``work`` when ``share`` of the sequences have to be prefilled again elsewhere."""
    resident = max(0.0, work.num_sequences * work.context_tokens - work.prefill_tokens)
    return replace(work, prefill_tokens=work.prefill_tokens + share * resident)
