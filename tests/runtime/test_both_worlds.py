"""The same whole-run tests of the coordinator over the simulated cluster and over real engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from bidirl.core.coordinator import run_job
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.job import JobSettings
from bidirl.core.topology import build_topology
from bidirl.policies.baselines import NoBorrow, Opportunistic
from bidirl.policies.splitters import CapacitySplit
from tests.core.invariants import check_invariants
from tests.core.worlds import RandomPolicy, Recorded, estimator, simulate
from tests.runtime.conftest import ParityTask

Run = Callable[[JobSettings, AdmissionPolicy], tuple[dict[str, Any], Recorded]]


@pytest.fixture(params=["sim", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.timeout(300)])])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a job in the world of the parameter."""
    if request.param == "sim":
        return simulate
    model: Path = request.getfixturevalue("tiny_model")

    def real(settings: JobSettings, policy: AdmissionPolicy) -> tuple[dict[str, Any], Recorded]:
        from bidirl.runtime.learning import GrpoConfig
        from bidirl.runtime.ray.cluster import RayCluster
        from bidirl.runtime.ray.config import RayConfig

        config = RayConfig(
            model=str(model),
            max_response_tokens=48,
            max_num_seqs=8,
            kv_cache_gib=0.25,
            object_store_gib=0.5,
            learning_rate=1e-3,
            seed=settings.seed,
        )
        cluster, recorder = RayCluster(build_topology(1, 1), config, GrpoConfig(), ParityTask()), Recorded()
        summary = asyncio.run(run_job(cluster, settings, policy, CapacitySplit(), estimator(), recorder))
        assert psutil.Process().children(recursive=True) == []
        return summary, recorder

    return real


def job(**changes: Any) -> JobSettings:
    values = {"num_steps": 4, "groups_per_batch": 6, "group_size": 4, "max_tokens_per_chunk": 256, "seed": 3}
    return JobSettings(**{**values, "calibration_steps": 1, "max_degenerate_batches": 50, **changes})


def test_borrowing_in_both_directions_keeps_the_invariants(run: Run) -> None:
    settings = job(staleness=0.0)
    summary, recorded = run(settings, Opportunistic())
    check_invariants(settings, summary, recorded, num_devices=2)
    assert all(direction["admitted"] >= 1 for direction in summary["leases"].values())
    assert summary["device_seconds"]["borrowed_rollout"] > 0
    assert summary["device_seconds"]["borrowed_train"] > 0
    assert {row["state"] for row in recorded.leases} == {"closed"}


def test_random_leases_and_revocations_keep_the_invariants(run: Run) -> None:
    settings = job(staleness=0.5)
    summary, recorded = run(settings, RandomPolicy(seed=5, admit=0.8, revoke=0.3))
    check_invariants(settings, summary, recorded, num_devices=2)


def test_without_borrowing_nothing_is_lent(run: Run) -> None:
    settings = job(staleness=1.0, consumption="pinned")
    summary, recorded = run(settings, NoBorrow())
    check_invariants(settings, summary, recorded, num_devices=2)
    assert not recorded.leases
    assert summary["device_seconds"]["borrowed_rollout"] == summary["device_seconds"]["borrowed_train"] == 0
    consumed = [row["group_id"] for row in recorded.groups if row["event"] == "consumed"]
    assert consumed == sorted(consumed)
    assert summary["staleness"]["max"] == 1
