"""Whole runs of the real coordinator on the simulated cluster: reproducible, conserving, faults end them cleanly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidirl.core.coordinator import run_job
from bidirl.core.errors import LearnerLost, WorkerError
from bidirl.core.job import JobSettings
from bidirl.core.records import Recorder, Row
from bidirl.core.topology import build_topology
from bidirl.models.estimator import Estimator
from bidirl.models.sim_calibration import timings_from_summary
from bidirl.models.sim_timings import SimTimings
from bidirl.models.testbeds import find_testbed
from bidirl.policies.baselines import NoBorrow, Opportunistic
from bidirl.policies.splitters import CapacitySplit
from bidirl.runtime.sim.cluster import SimCluster
from bidirl.runtime.sim.faults import FaultPlan, ScriptedFaults
from bidirl.runtime.sim.virtual_time import run_virtual
from bidirl.runtime.sim.workload import LognormalWorkload

TIMINGS = find_testbed("a6000").timings("qwen3-vl-2b")


class Log(Recorder):
    """Keeps everything as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.consumed: list[Row] = []

    def activity(self, device: int, activity: str, start_seconds: float, end_seconds: float, detail: str = "") -> None:
        self.lines.append(repr((device, activity, start_seconds, end_seconds, detail)))

    def decision(self, row: Row) -> None:
        self.lines.append(repr({**row, "policy": ""}))

    def ledger(self, row: Row) -> None:
        self.lines.append(repr(row))
        if row["event"] == "consumed":
            self.consumed.append(row)

    def step(self, row: Mapping[str, float]) -> None:
        self.lines.append(repr(row))


def run(
    *,
    roll: int = 2,
    train: int = 2,
    seed: int = 0,
    staleness: float = 1.0,
    borrow: bool = True,
    timings: SimTimings = TIMINGS,
    faults: FaultPlan | None = None,
    restarts: int = 3,
) -> tuple[dict[str, Any], Log]:
    workload = LognormalWorkload(group_size=4, max_response_tokens=1024, median_response_tokens=200.0, seed=seed)
    world = SimCluster(build_topology(roll, train), workload, timings, max_num_seqs=16, seed=seed, faults=faults)
    estimator = Estimator.calibrated(1024)
    job = JobSettings(
        num_steps=5, groups_per_batch=8, group_size=4, staleness=staleness, max_worker_restarts=restarts, seed=seed
    )
    log = Log()
    policy = Opportunistic() if borrow else NoBorrow()
    return run_virtual(run_job(world, job, policy, CapacitySplit(), estimator, log)), log


NOISY = SimTimings(
    **{
        **{name: getattr(TIMINGS, name) for name in TIMINGS.__slots__},
        "rollout_noise": 0.1,
        "trainer_noise": 0.1,
        "switch_noise": 0.2,
        "generate_overhead_seconds": 0.01,
        "train_overhead_seconds": 0.02,
    }
)


@pytest.mark.parametrize("borrow", [False, True])
def test_the_same_seed_gives_the_same_run_bit_for_bit(borrow: bool) -> None:
    first, second = run(borrow=borrow, timings=NOISY), run(borrow=borrow, timings=NOISY)
    assert first[1].lines == second[1].lines
    assert json.dumps({**first[0], "policy": ""}) == json.dumps({**second[0], "policy": ""})
    assert run(borrow=borrow, timings=NOISY, seed=1)[1].lines != first[1].lines


@settings(max_examples=25, deadline=None)
@given(
    roll=st.integers(1, 4),
    train=st.integers(1, 4),
    seed=st.integers(0, 100),
    staleness=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    borrow=st.booleans(),
    noise=st.booleans(),
)
def test_every_consumed_group_has_the_lengths_of_the_workload(
    roll: int, train: int, seed: int, staleness: float, borrow: bool, noise: bool
) -> None:
    timings = NOISY if noise else TIMINGS
    summary, log = run(roll=roll, train=train, seed=seed, staleness=staleness, borrow=borrow, timings=timings)
    workload = LognormalWorkload(group_size=4, max_response_tokens=1024, median_response_tokens=200.0, seed=seed)
    assert summary["steps"] == 5
    assert len(log.consumed) == 5 * 8
    for row in log.consumed:
        assert tuple(row["response_tokens"]) == workload.response_tokens(row["group_id"])
        assert tuple(row["rewards"]) == workload.rewards(row["group_id"])
    total = sum(summary["device_seconds"].values())
    assert total == pytest.approx((roll + train) * summary["wall_seconds"])


def test_a_failed_switch_does_not_end_the_run() -> None:
    faults = ScriptedFaults([("switch_in", "*", number, 0.5) for number in range(2, 7)])
    summary, _ = run(faults=faults)
    assert summary["steps"] == 5
    assert sum(direction["rolled_back"] for direction in summary["leases"].values()) > 0


@pytest.mark.parametrize("verb", ["begin_batch", "optimizer_step", "export_weights"])
def test_a_lost_primary_trainer_ends_the_run_with_its_cause(verb: str) -> None:
    with pytest.raises(LearnerLost, match=f"scripted fault: {verb}"):
        run(faults=ScriptedFaults([(verb, "*", 2, 0.1)]))


@pytest.mark.parametrize(("verb", "call"), [("generate", 1), ("load_weights", 1), ("switch_out", 2), ("interrupt", 1)])
def test_a_lost_rollouter_or_auxiliary_is_restarted(verb: str, call: int) -> None:
    summary, log = run(faults=ScriptedFaults([(verb, "*", call, 0.1)]))
    assert summary["steps"] == 5
    assert len({row["group_id"] for row in log.consumed}) == len(log.consumed) == 5 * 8
    assert sum(summary["restarts"].values()) > 0


def test_without_restarts_a_lost_rollouter_ends_the_run_with_its_cause() -> None:
    with pytest.raises(WorkerError, match="scripted fault: generate"):
        run(faults=ScriptedFaults([("generate", "*", 2, 0.1)]), restarts=0)


def test_calibration_from_a_run_gives_its_timings_back() -> None:
    summary, _ = run()
    timings = timings_from_summary(json.loads(json.dumps(summary)))
    for name in ("optimizer_step_seconds", "export_seconds", "load_weights_seconds"):
        assert getattr(timings, name) == pytest.approx(getattr(TIMINGS, name))
    for name in ("trainer_on_rollpool", "rollouter_on_trainpool"):
        for part in ("in_seconds", "out_seconds"):
            assert getattr(getattr(timings, name), part) == pytest.approx(getattr(getattr(TIMINGS, name), part))
    again, _ = run(timings=timings)
    assert again["wall_seconds"] == pytest.approx(summary["wall_seconds"], rel=0.03)
