"""The views that the conformance checks ask about: both directions, ordinary and at the edges."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from bidirl.core.chunks import SubStage
from bidirl.core.errors import PolicyError
from bidirl.core.interfaces import StageModel, UsageT, WorkT
from bidirl.core.opportunity import GroupSplitView, LeaseHistory, MissingGroup, Opportunity, PullView
from bidirl.core.topology import Direction
from bidirl.core.work import RolloutUsage, RolloutWork, SwitchCost, TrainerWork


class _ReadOnlyModel(StageModel[WorkT, UsageT]):
    """A perfect stand-in that answers ``predict`` and refuses to learn: policies only ask."""

    def __init__(self, *, is_ready: bool = True) -> None:
        self._ready = is_ready

    def __repr__(self) -> str:
        return f"{type(self).__name__}(is_ready={self._ready})"

    @property
    def ready(self) -> bool:
        return self._ready

    def observe(self, usage: UsageT, seconds: float) -> None:
        raise PolicyError("calls observe on a stage model: policies only call predict")

    def parameters(self) -> Mapping[str, Any]:
        return {}

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        raise PolicyError("calls load_parameters on a stage model: policies only call predict")


class ReadOnlyRolloutModel(_ReadOnlyModel[RolloutWork, RolloutUsage]):
    """10 ms per decode step, 0.1 ms per prefilled token."""

    def predict(self, work: RolloutWork, replicas: int) -> float:
        if work.num_sequences == 0:
            return 0.0
        return self.predict_usage(work.usage(replicas)) if replicas > 0 else float("inf")

    def predict_usage(self, usage: RolloutUsage) -> float:
        return 0.01 * usage.decode_steps + 1e-4 * (usage.prefill_tokens + usage.decode_tokens)


class ReadOnlyTrainerModel(_ReadOnlyModel[TrainerWork, TrainerWork]):
    """0.1 s per thousand tokens, divided evenly, no faster than the longest chunk."""

    def predict(self, work: TrainerWork, replicas: int) -> float:
        if not work.chunks:
            return 0.0
        tokens = [size for _, size in work.chunks]
        return max(max(tokens), sum(tokens) / replicas) * 1e-4 if replicas > 0 else float("inf")

    def predict_usage(self, usage: TrainerWork) -> float:
        return self.predict(usage, 1)


def _chunks(parts: int) -> tuple[tuple[SubStage, int], ...]:
    return tuple((stage, 1000 + 137 * (part % 7)) for stage in SubStage for part in range(parts))


TRAINER_WORKS = tuple(TrainerWork(_chunks(parts), num_bytes) for parts, num_bytes in ((1, 0.0), (5, 0.0), (12, 1e6)))
TRAINER_USAGES = tuple(TrainerWork(((stage, size),)) for stage in SubStage for size in (500, 2000, 7000))
ROLLOUT_WORKS = (
    RolloutWork(1, 100.0, 50.0, 50.0, 0.0, 16),
    RolloutWork(64, 200.0, 400.0, 1500.0, 12800.0, 16),
    RolloutWork(512, 300.0, 100.0, 2000.0, 0.0, 64),
)
ROLLOUT_USAGES = tuple(
    RolloutUsage(100.0 * n, float(steps), float(n * steps), float(n * steps * 300))
    for n, steps in ((1, 50), (4, 200), (16, 100), (16, 800))
)


def _opportunity(
    direction: Direction, primaries: int, auxiliaries: int, size: int, seconds: float, wait: float, ready: bool
) -> Opportunity:
    rollout = direction is Direction.ROLLOUTER_ON_TRAINPOOL
    return Opportunity(
        opportunity_id=7,
        direction=direction,
        cause="group_finished",
        now_seconds=123.0,
        version=3,
        staleness_bound=1.0,
        primary_replicas=primaries,
        auxiliary_replicas=auxiliaries,
        missing_groups=8 * size if rollout else 0,
        rollout_work=ROLLOUT_WORKS[size],
        trainer_work=TRAINER_WORKS[size] if size or not rollout else TrainerWork(()),
        chunk_seconds_running=0.0,
        lender_wait_seconds=wait,
        switch_cost=SwitchCost(seconds, seconds, 0.0 if rollout else seconds / 4),
        rollout_model=ReadOnlyRolloutModel(is_ready=ready),
        trainer_model=ReadOnlyTrainerModel(is_ready=ready),
        calibrating=False,
        history=LeaseHistory((1.0, 2.0, 4.0), 0.05, 2, 1) if ready else LeaseHistory(),
    )


OPPORTUNITIES = tuple(
    _opportunity(direction, primaries, auxiliaries, size, seconds, wait, ready)
    for direction, (primaries, auxiliaries), size, seconds, wait, ready in product(
        Direction,
        ((1, 1), (4, 12), (2, 0)),
        (0, 1, 2),
        (0.0, 0.2, 500.0),
        (float("inf"), float("nan"), 3.0),
        (True, False),
    )
) + tuple(_opportunity(Direction.ROLLOUTER_ON_TRAINPOOL, 0, 4, 1, 0.2, float("inf"), ready) for ready in (True, False))


def _missing(count: int, running: int) -> tuple[MissingGroup, ...]:
    return tuple(
        MissingGroup(100 + i, i < running, 4, tuple(37 * (i + j) % 300 if i < running else 0 for j in range(4)))
        for i in range(count)
    )


GROUP_VIEWS = tuple(
    GroupSplitView(_missing(count, running), primaries, auxiliaries, held, first, ReadOnlyRolloutModel())
    for (count, running), (primaries, auxiliaries), (held, first) in product(
        ((0, 0), (1, 1), (7, 3), (12, 12), (60, 20)), ((1, 1), (4, 12), (0, 3)), ((0, True), (0, False), (2, False))
    )
)

PULL_VIEWS = tuple(
    PullView(TrainerWork(_chunks(3)[:count]), side, own, other, 0.0 if side else overhead, busy, ReadOnlyTrainerModel())
    for count, side, (own, other), overhead, busy in product(
        (0, 1, 2, 9), (True, False), ((1, 1), (4, 12), (2, 0)), (0.0, 5.0), (0.0, 0.05)
    )
)
