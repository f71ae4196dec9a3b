"""Ten real steps at s = 1: borrowing, revocations and a killed engine leave every bit of training as it was."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("vllm")
pytest.importorskip("deepspeed")

from bidirl.cli.neutrality import VersionHashes, first_difference
from bidirl.core.coordinator import run_job
from bidirl.core.job import JobSettings
from bidirl.core.topology import build_topology
from bidirl.models.estimator import Estimator
from bidirl.policies.baselines import NoBorrow
from bidirl.policies.random_leases import RandomLeases
from bidirl.policies.splitters import CapacitySplit
from bidirl.runtime.learning import GrpoConfig
from bidirl.runtime.ray.cluster import RayCluster
from bidirl.runtime.ray.config import RayConfig
from tests.runtime.conftest import ParityTask

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

JOB = JobSettings(
    num_steps=10,
    groups_per_batch=4,
    group_size=4,
    staleness=1.0,
    consumption="pinned",
    max_tokens_per_chunk=128,
    calibration_steps=0,
    record_digests=True,
)


class KillingHashes(VersionHashes):
    """Kills every process of the primary rollouter once, with SIGKILL, after version 3."""

    def watch(self, cluster):
        self.cluster = cluster
        return self

    def step(self, row):
        if row["version"] == 3:
            for process_id in self.cluster._fleet[self.cluster.topology.primary_rollouters[0]].process_ids:
                os.kill(process_id, signal.SIGKILL)


def train(model, policy, hashes):
    config = RayConfig(
        model=str(model),
        gradient_merge="exact",
        learning_rate=1e-3,
        max_response_tokens=48,
        max_num_seqs=16,
        kv_cache_gib=0.25,
        object_store_gib=0.5,
        verb_timeout_seconds=60.0,
    )
    cluster = RayCluster(build_topology(1, 1), config, GrpoConfig(), ParityTask())
    if isinstance(hashes, KillingHashes):
        hashes.watch(cluster)
    estimator = Estimator.calibrated(48)
    return asyncio.run(run_job(cluster, JOB, policy, CapacitySplit(), estimator, hashes))


def test_training_is_bit_identical_with_borrowing_revocations_and_a_killed_engine(tiny_model):
    alone, disturbed = VersionHashes(), KillingHashes()
    train(tiny_model, NoBorrow(), alone)
    summary = train(tiny_model, RandomLeases(seed=1), disturbed)
    assert len(alone.parameters) == len(set(alone.parameters.values())) == 10
    assert first_difference(alone, disturbed) is None
    assert disturbed.num_leases
    assert summary["restarts"] == {"rollouter@rollpool:0": 1}
    assert summary["groups"]["issued"] == summary["groups"]["consumed"] + summary["groups"]["in_flight"]
