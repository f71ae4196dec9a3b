"""The policies in whole simulated runs: where borrowing cannot pay, and where it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bidirl.core.coordinator import run_job
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.job import JobSettings
from bidirl.core.records import Recorder
from bidirl.core.topology import Direction, build_topology
from bidirl.core.work import SwitchCost
from bidirl.models.estimator import Estimator
from bidirl.models.testbeds import find_testbed
from bidirl.policies.baselines import NoBorrow, Opportunistic
from bidirl.policies.model_guided import ModelGuided
from bidirl.policies.priced import PricedModelGuided
from bidirl.policies.splitters import CapacitySplit
from bidirl.runtime.sim.cluster import SimCluster
from bidirl.runtime.sim.virtual_time import run_virtual
from bidirl.runtime.sim.workload import LognormalWorkload

JOB = JobSettings(
    num_steps=6, groups_per_batch=16, group_size=4, staleness=0.0, max_tokens_per_chunk=4096, watchdog_seconds=1e6
)


def simulate(policy: AdmissionPolicy, roll: int, train: int, switch_scale: float) -> Mapping[str, Any]:
    timings = find_testbed("a6000").timings("qwen3-vl-2b")
    parts = {d.value: timings.switch(d) for d in Direction}
    scaled = {
        name: SwitchCost(*(switch_scale * x for x in (c.in_seconds, c.out_seconds, c.grad_seconds)))
        for name, c in parts.items()
    }
    workload = LognormalWorkload(group_size=4, max_response_tokens=2048, median_response_tokens=400)
    estimates = Estimator.calibrated(2048)
    cluster = SimCluster(build_topology(roll, train), workload, replace(timings, **scaled))
    summary: Mapping[str, Any] = run_virtual(run_job(cluster, JOB, policy, CapacitySplit(), estimates, Recorder()))
    return summary


def leases(summary: Mapping[str, Any]) -> int:
    return sum(summary["leases"][d.value]["admitted"] for d in Direction)


@pytest.mark.parametrize("policy", [ModelGuided(), PricedModelGuided()])
def test_refuses_where_borrowing_cannot_pay(policy: AdmissionPolicy) -> None:
    alone = simulate(NoBorrow(), 4, 2, 50.0)
    assert leases(simulate(policy, 4, 2, 50.0)) == 0
    ratio = simulate(Opportunistic(), 4, 2, 50.0)["wall_seconds"] / alone["wall_seconds"]
    assert ratio > 1.5


def test_priced_borrows_and_gains_where_switches_are_cheap() -> None:
    alone, priced = simulate(NoBorrow(), 6, 1, 0.1), simulate(PricedModelGuided(), 6, 1, 0.1)
    assert leases(priced) > 0 and priced["wall_seconds"] < 0.9 * alone["wall_seconds"]


def test_admissions_fall_to_zero_as_switch_costs_scale() -> None:
    counts = [leases(simulate(PricedModelGuided(), 6, 1, scale)) for scale in (0.1, 1.0, 100.0)]
    assert counts[0] > 0 and counts[-1] == 0
