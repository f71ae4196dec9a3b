"""Scheduling: on every event, see whether something is idle while something is missing, and ask the policy."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite

from bidirl.core.devices import Activity
from bidirl.core.errors import PolicyError
from bidirl.core.feeding import Feeder
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.leases import Lease, LeaseState
from bidirl.core.lending import Lender
from bidirl.core.missing import MissingSequences
from bidirl.core.opportunity import Decision, LeaseHistory, Opportunity
from bidirl.core.records import Recorder
from bidirl.core.rollouter import Rollouter
from bidirl.core.state import RunState
from bidirl.core.topology import Direction, Worker
from bidirl.core.training import TrainLoop
from bidirl.core.work import RolloutWork, TrainerWork

DECISION_SCHEMA = 3
"""Version of the rows of the decision log; a reader refuses any other."""


class Scheduler:
    """Builds opportunities, asks the policy, opens and ends leases. Decides; the lender carries out."""

    def __init__(
        self, state: RunState, policy: AdmissionPolicy, feeder: Feeder, trainer: TrainLoop, lender: Lender
    ) -> None:
        self.state = state
        self.policy = policy
        self.feeder = feeder
        self.trainer = trainer
        self.lender = lender
        self.num_decisions = 0
        self.num_admitted = dict.fromkeys(Direction, 0)
        self.num_refused = dict.fromkeys(Direction, 0)
        self._prompt_tokens = 0.0
        by_device = {device: r for r in feeder.primaries for device in r.worker.devices}
        auxiliaries = state.cluster.topology.auxiliary_trainers
        self._trainpool = {device for w in state.cluster.topology.auxiliary_rollouters for device in w.devices}
        self._homes = {w: tuple({id(by_device[d]): by_device[d] for d in w.devices}.values()) for w in auxiliaries}
        self._keeps_decisions = type(state.recorder).decision is not Recorder.decision
        self._asks_release = type(policy).release is not AdmissionPolicy.release

    def before_feeding(self, cause: str) -> None:
        """May trainers that wait lend their devices to rollout? Asked before waiting groups go to the primaries."""
        self._ask_release(cause)
        workers = self.state.cluster.topology.auxiliary_rollouters
        if not self.trainer.waiting or not workers or not self.state.board.free >= self._trainpool:
            return
        missing = self.feeder.missing_sequences(held=False)
        if missing.num_groups:
            self._consider(self._rollout_opportunity(cause, missing, len(workers)), workers)

    def after_feeding(self, cause: str) -> None:
        """May rollouters that found nothing to do lend their devices to training?"""
        queue = self.trainer.queue
        if queue is None or not queue.num_queued:
            return
        workers = self._lendable()
        if workers:
            self._consider(self._train_opportunity(cause, len(workers)), workers)

    # -- what is idle ------------------------------------------------------------------------------------------------

    def _lendable(self) -> tuple[Worker, ...]:
        """Auxiliary trainers on whose devices all primaries are idle, up to date, and have nothing to start."""
        free, feeder = self.state.board.free, self.feeder
        has_work: dict[int, bool] = {}

        def dry(rollouter: Rollouter) -> bool:
            served = rollouter.served
            if not rollouter.idle or served != feeder.due_version(rollouter):
                return False
            if served not in has_work:
                has_work[served] = feeder.has_work_for(rollouter)
            return not has_work[served]

        return tuple(w for w, homes in self._homes.items() if free.issuperset(w.devices) and all(map(dry, homes)))

    # -- opportunities -----------------------------------------------------------------------------------------------

    def _rollout_opportunity(self, cause: str, missing: MissingSequences, auxiliaries: int) -> Opportunity:
        return self._opportunity(
            Direction.ROLLOUTER_ON_TRAINPOOL,
            cause,
            len(self.feeder.primaries),
            auxiliaries,
            missing.num_groups,
            self._rollout_work(missing),
            self.trainer.last_work,
            float("inf"),
            len(self.trainer.primary.workers),
        )

    def _train_opportunity(self, cause: str, auxiliaries: int, borrowed_already: int = 0) -> Opportunity:
        assert self.trainer.queue is not None
        active = len(self.trainer.primary.workers) + sum(len(s.workers) for s in self.trainer.sides.values())
        switching = sum(
            len(x.workers)
            for x in self.lender.open.values()
            if x.direction is Direction.TRAINER_ON_ROLLPOOL and x.state is LeaseState.SWITCHING_IN
        )
        coming = MissingSequences.fresh(self.state.settings.groups_per_batch, self.state.settings.group_size)
        work, primaries = TrainerWork(self.trainer.queue.queued_sizes), active + switching - borrowed_already
        return self._opportunity(
            Direction.TRAINER_ON_ROLLPOOL,
            cause,
            primaries,
            auxiliaries,
            0,
            self._rollout_work(coming),
            work,
            self._seconds_to_next_version(work, primaries),
            len(self.feeder.primaries),
            primaries - len(self.trainer.primary.workers),
        )

    def _seconds_to_next_version(self, work: TrainerWork, replicas: int) -> float:
        """Predicted seconds until idle rollouters get work again, without this borrow; ``nan`` before calibration."""
        model, seconds = self.state.estimates.trainer_model, self.state.verb_seconds()
        if not model.ready or replicas <= 0 or "export_weights" not in seconds:
            return float("nan")
        publish = seconds["optimizer_step"]["mean"] + seconds["export_weights"]["mean"]
        return self.trainer.primary.busy_seconds + model.predict(work, replicas) + publish

    def _rollout_work(self, missing: MissingSequences) -> RolloutWork:
        if not self._prompt_tokens:
            self._prompt_tokens = float(self.state.cluster.prompt(0).num_tokens)
        slots = min(self.state.cluster.max_num_seqs, self.feeder.max_groups * self.state.settings.group_size)
        return self.state.estimates.rollout_work(missing.generated, self._prompt_tokens, missing.resident, slots)

    def _opportunity(
        self,
        direction: Direction,
        cause: str,
        primaries: int,
        auxiliaries: int,
        missing_groups: int,
        rollout_work: RolloutWork,
        work: TrainerWork,
        lender_wait_seconds: float,
        lender_replicas: int,
        borrowed_replicas: int = 0,
    ) -> Opportunity:
        state = self.state
        return Opportunity(
            opportunity_id=self.num_decisions,
            direction=direction,
            cause=cause,
            now_seconds=state.now_seconds(),
            version=state.version,
            staleness_bound=state.settings.staleness,
            primary_replicas=primaries,
            auxiliary_replicas=auxiliaries,
            missing_groups=missing_groups,
            rollout_work=rollout_work,
            trainer_work=work,
            chunk_seconds_running=self.trainer.primary.busy_seconds,
            lender_wait_seconds=lender_wait_seconds,
            switch_cost=state.estimates.switch_cost(direction),
            rollout_model=state.estimates.rollout_model,
            trainer_model=state.estimates.trainer_model,
            history=self._history(direction),
            calibrating=state.version < state.settings.calibration_steps,
            lender_replicas=lender_replicas,
            borrowed_replicas=borrowed_replicas,
        )

    def _history(self, direction: Direction) -> LeaseHistory:
        closed = [lease for lease in self.lender.closed if lease.direction is direction]
        samples = self.feeder.num_finished * self.state.settings.group_size
        return LeaseHistory(
            tuple(lease.in_seconds + lease.out_seconds for lease in closed[-3:]),
            self.state.now_seconds() / samples if samples else float("nan"),
            sum(lease.realised_benefit_seconds > 0 for lease in closed),
            sum(lease.realised_benefit_seconds <= 0 for lease in closed),
        )

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _consider(self, opportunity: Opportunity, workers: tuple[Worker, ...]) -> None:
        decision = self._decide(opportunity)
        self.num_decisions += 1
        counts = self.num_admitted if decision.admit else self.num_refused
        counts[opportunity.direction] += 1
        lease_id = sum(self.num_admitted.values())
        if self._keeps_decisions:
            self.state.recorder.decision(decision_row(opportunity, decision, self.policy, lease_id))
        if decision.admit:
            to_rollout = opportunity.direction is Direction.ROLLOUTER_ON_TRAINPOOL
            lease = Lease(
                lease_id,
                opportunity.direction,
                workers,
                opportunity.opportunity_id,
                decision,
                self.feeder.lending_version() if to_rollout else self.state.exported,
                opportunity.now_seconds,
            )
            self.lender.start(lease)

    def _decide(self, opportunity: Opportunity) -> Decision:
        try:
            decision = self.policy.decide(opportunity)
        except Exception as error:
            raise PolicyError(f"policy {self.policy!r} failed in decide: {error!r} (on {opportunity})") from error
        if not isinstance(decision, Decision):
            returned = f"decide returned {decision!r}, not a Decision"
            raise PolicyError(f"policy {self.policy!r}: {returned} (on {opportunity})")
        return decision

    def _ask_release(self, cause: str) -> None:
        if not self._asks_release:
            return
        for lease in tuple(self.lender.open.values()):
            if lease.state is not LeaseState.ACTIVE:
                continue
            busy = any(self.state.board.activity(device) is not Activity.IDLE for device in lease.devices)
            opportunity = self._remaining(lease, cause)
            try:
                release = self.policy.release(lease.view(self.state.now_seconds(), busy), opportunity)
            except Exception as error:
                raise PolicyError(f"policy {self.policy!r} failed in release: {error!r}") from error
            if release:
                self.lender.end(lease)

    def _remaining(self, lease: Lease, cause: str) -> Opportunity | None:
        """What is still missing, as an opportunity of the lease's direction."""
        if lease.direction is Direction.ROLLOUTER_ON_TRAINPOOL:
            missing = self.feeder.missing_sequences(held=True)
            return self._rollout_opportunity(cause, missing, len(lease.workers)) if missing.num_groups else None
        queue = self.trainer.queue
        if queue is None or not queue.num_queued:
            return None
        return self._train_opportunity(cause, len(lease.workers), borrowed_already=len(lease.workers))


def decision_row(
    opportunity: Opportunity, decision: Decision, policy: AdmissionPolicy, lease_id: int
) -> dict[str, object]:
    """One row of the decision log: everything that the policy saw, and what it said."""
    work, wait = opportunity.trainer_work, opportunity.lender_wait_seconds
    return {
        "schema": DECISION_SCHEMA,
        "opportunity_id": opportunity.opportunity_id,
        "direction": opportunity.direction.value,
        "cause": opportunity.cause,
        "seconds": opportunity.now_seconds,
        "version": opportunity.version,
        "staleness_bound": opportunity.staleness_bound,
        "primary_replicas": opportunity.primary_replicas,
        "auxiliary_replicas": opportunity.auxiliary_replicas,
        "missing_groups": opportunity.missing_groups,
        "rollout_work": asdict(opportunity.rollout_work),
        "trainer_work": {"chunks": work.chunks, "comm_bytes": work.comm_bytes},
        "chunk_seconds_running": opportunity.chunk_seconds_running,
        "lender_wait_seconds": wait if isfinite(wait) else str(wait),
        "lender_replicas": opportunity.lender_replicas,
        "borrowed_replicas": opportunity.borrowed_replicas,
        "switch_cost": asdict(opportunity.switch_cost),
        "rollout_model": dict(opportunity.rollout_model.parameters()),
        "trainer_model": dict(opportunity.trainer_model.parameters()),
        "history": asdict(opportunity.history),
        "calibrating": opportunity.calibrating,
        "policy": repr(policy),
        "admit": decision.admit,
        "reason": decision.reason,
        "benefit_seconds": decision.benefit_seconds,
        "cost_seconds": decision.cost_seconds,
        "numbers": dict(decision.numbers),
        "lease_id": lease_id if decision.admit else None,
    }
