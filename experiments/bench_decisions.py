"""Latency of ``decide()`` on large opportunities. Run: ``python experiments/bench_decisions.py``."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from time import perf_counter

import numpy as np

from bidirl.core.chunks import SubStage
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import LeaseHistory, Opportunity
from bidirl.core.topology import Direction
from bidirl.core.work import RolloutWork, SwitchCost, TrainerWork
from bidirl.models.oracle import OracleRolloutModel
from bidirl.models.trainer import CalibratedTrainerModel
from bidirl.policies.model_guided import ModelGuided
from bidirl.policies.priced import PricedModelGuided
from bidirl.policies.published_gates import VerlDynamicSchedule


def opportunities(count: int, num_chunks: int, seed: int) -> list[Opportunity]:
    """Random opportunities, half of each direction, with ``num_chunks`` chunks of a calibrated trainer model."""
    rng = np.random.default_rng(seed)
    trainer = CalibratedTrainerModel()
    for i in range(300):
        tokens = int(rng.integers(500, 8000))
        trainer.observe(TrainerWork(((list(SubStage)[i % 3], tokens),)), 0.05 + tokens * 1e-4)
    rollout = OracleRolloutModel(prefill_seconds=1e-4, step_seconds=0.02, token_seconds=1e-4)
    stages = [stage for stage in SubStage for _ in range(-(-num_chunks // 3))]
    base = Opportunity(
        opportunity_id=0,
        direction=Direction.ROLLOUTER_ON_TRAINPOOL,
        cause="bench",
        now_seconds=0.0,
        version=0,
        staleness_bound=1.0,
        primary_replicas=8,
        auxiliary_replicas=8,
        missing_groups=60,
        rollout_work=RolloutWork(480, 500.0, 600.0, 1800.0, 0.0, 64),
        trainer_work=TrainerWork(()),
        chunk_seconds_running=0.0,
        lender_wait_seconds=inf,
        switch_cost=SwitchCost(6.0, 5.0, 1.2),
        rollout_model=rollout,
        trainer_model=trainer,
        history=LeaseHistory((9.0,), 0.1),
    )
    return [
        replace(
            base,
            direction=list(Direction)[i % 2],
            trainer_work=TrainerWork(tuple((stage, int(rng.integers(500, 8000))) for stage in stages[:num_chunks])),
        )
        for i in range(count)
    ]


def decide_latency_seconds(policy: AdmissionPolicy, num_chunks: int = 500, count: int = 400) -> tuple[float, float]:
    """(median, 99th percentile) seconds of one decision on fresh opportunities."""
    times = []
    for opportunity in opportunities(count, num_chunks, seed=0):
        start = perf_counter()
        policy.decide(opportunity)
        times.append(perf_counter() - start)
    median, p99 = np.quantile(times, (0.5, 0.99))
    return float(median), float(p99)


if __name__ == "__main__":
    for policy in (ModelGuided(), PricedModelGuided(), VerlDynamicSchedule()):
        for num_chunks in (50, 500):
            median, p99 = decide_latency_seconds(policy, num_chunks)
            name = f"{type(policy).__name__:20} {num_chunks:4} chunks"
            print(f"{name}: {median * 1e3:.3f} ms median, {p99 * 1e3:.3f} ms p99")
