"""Immutable snapshots that policies and splitters see, and what they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bidirl.core.topology import Direction
from bidirl.core.work import RolloutUsage, RolloutWork, SwitchCost, TrainerWork

if TYPE_CHECKING:
    from bidirl.core.interfaces import StageModel


@dataclass(frozen=True, slots=True)
class LeaseHistory:
    """What earlier leases of one direction were like, for gates that go by moving averages instead of models.

    Attributes:
        recent_switch_seconds: C_in + C_out of the last closed leases, newest last (at least the last three).
        sample_seconds: wall seconds of rollout per finished sample, averaged over the whole run; ``nan`` until one has
            finished.
        paid: closed leases whose realised benefit was positive.
        lost: closed leases whose realised benefit was not.
    """

    recent_switch_seconds: tuple[float, ...] = ()
    sample_seconds: float = float("nan")
    paid: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Opportunity:
    """Something is idle and something is missing: may the idle side be borrowed?

    Attributes:
        opportunity_id: number within the run.
        direction: who would borrow from whom.
        cause: the event that raised it, for example ``"group_finished"``.
        now_seconds: time since the run started.
        version: optimizer steps applied so far.
        staleness_bound: s.
        primary_replicas: d_p, replicas that work on it without this borrow (auxiliaries of open leases included).
        auxiliary_replicas: d_a, idle replicas that could be borrowed.
        missing_groups: Q_r, groups that the next batch still lacks (rollouter_on_trainpool; else 0).
        rollout_work: the same as work for M_r; for trainer_on_rollpool what the lender will have to do next.
        trainer_work: U, the remaining stage-ordered chunks for M_t; for rollouter_on_trainpool what the lender will
            have to do next (the coming batch).
        chunk_seconds_running: mean seconds that chunks now running on the borrower's side have left; 0 if unknown.
        lender_wait_seconds: predicted seconds until the lending side has work of its own again; ``inf`` if it cannot
            have any before the borrow ends, ``nan`` if unknown. Idle rollouters get work when the next version is out.
        borrowed_replicas: how many of d_p are auxiliaries of open leases.
        lender_replicas: primary replicas of the lending side, idle or not; 0 if unknown.
        switch_cost: measured C_in, C_out, C_grad of this direction.
        rollout_model, trainer_model: M_r and M_t. Policies only call ``predict``.
        calibrating: true during the calibration phase.
        history: earlier leases of this direction.
    """

    opportunity_id: int
    direction: Direction
    cause: str
    now_seconds: float
    version: int
    staleness_bound: float
    primary_replicas: int
    auxiliary_replicas: int
    missing_groups: int
    rollout_work: RolloutWork
    trainer_work: TrainerWork
    chunk_seconds_running: float
    lender_wait_seconds: float
    switch_cost: SwitchCost
    rollout_model: StageModel[RolloutWork, RolloutUsage]
    trainer_model: StageModel[TrainerWork, TrainerWork]
    calibrating: bool = False
    history: LeaseHistory = LeaseHistory()
    lender_replicas: int = 0
    borrowed_replicas: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """Admit or refuse, with the numbers behind it.

    Attributes:
        admit: the verdict.
        reason: short and machine-friendly, for example ``"benefit_exceeds_cost"``.
        benefit_seconds: predicted saving before costs; ``nan`` if not predicted.
        cost_seconds: predicted cost; ``nan`` if not predicted.
        numbers: anything else worth logging.
    """

    admit: bool
    reason: str
    benefit_seconds: float = float("nan")
    cost_seconds: float = float("nan")
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaseView:
    """An open lease as a policy sees it."""

    lease_id: int
    direction: Direction
    opened_seconds: float
    now_seconds: float
    auxiliary_replicas: int
    auxiliary_busy: bool


@dataclass(frozen=True, slots=True)
class MissingGroup:
    """A group that the next batch needs and that is not finished.

    Attributes:
        group_id: identity.
        running: whether a primary rollouter runs it now (moving it costs a re-prefill of its context).
        num_sequences: unfinished samples.
        generated_tokens: tokens so far of each unfinished sample.
    """

    group_id: int
    running: bool
    num_sequences: int
    generated_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupSplitView:
    """What :meth:`Splitter.split_groups` sees. ``missing`` is in feeding order, groups on auxiliaries left out.

    ``auxiliary_groups`` counts the unfinished groups that auxiliaries already hold. ``first`` is true at switch-in.
    """

    missing: tuple[MissingGroup, ...]
    primary_replicas: int
    auxiliary_replicas: int
    auxiliary_groups: int
    first: bool
    rollout_model: StageModel[RolloutWork, RolloutUsage]


@dataclass(frozen=True, slots=True)
class PullView:
    """What :meth:`Splitter.pull_chunks` sees: one side is ready for chunks.

    Attributes:
        queued: remaining chunks as stage-ordered work.
        primary_side: whether the primary trainers ask.
        own_replicas: trainer replicas of the asking side.
        other_replicas: trainer replicas of all other sides (0: nobody else).
        own_overhead_seconds: cost the asking side adds at the end if it takes part (C_grad for auxiliaries).
        other_busy_seconds: predicted seconds until the other side is free; 0 if it is waiting.
        trainer_model: M_t.
    """

    queued: TrainerWork
    primary_side: bool
    own_replicas: int
    other_replicas: int
    own_overhead_seconds: float
    other_busy_seconds: float
    trainer_model: StageModel[TrainerWork, TrainerWork]
