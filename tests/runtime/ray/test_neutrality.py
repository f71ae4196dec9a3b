"""Ten real steps at s = 1: borrowing, revocations, killed engines and a resumed learner leave every bit as it was."""

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
from bidirl.core.errors import LearnerLost
from bidirl.core.job import JobSettings
from bidirl.core.topology import Role, build_topology
from bidirl.models.estimator import Estimator
from bidirl.policies.baselines import NoBorrow
from bidirl.policies.random_leases import RandomLeases
from bidirl.policies.splitters import CapacitySplit
from bidirl.runtime.learning import GrpoConfig
from bidirl.runtime.outputs.checkpoints import DirectoryCheckpoints, latest_checkpoint
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
    """Kills every process of one primary with SIGKILL, once, when a version was reached."""

    def __init__(self, role: Role, version: int) -> None:
        super().__init__()
        self.role = role
        self.version = version
        self.cluster: RayCluster | None = None

    def step(self, row):
        if row["version"] == self.version:
            topology = self.cluster.topology
            primaries = {Role.ROLLOUTER: topology.primary_rollouters, Role.TRAINER: topology.primary_trainers}
            for process_id in self.cluster._fleet[primaries[self.role][0]].process_ids:
                os.kill(process_id, signal.SIGKILL)


def train(model, policy, hashes, checkpoints=None):
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
        hashes.cluster = cluster
    estimator = Estimator.calibrated(48)
    return asyncio.run(run_job(cluster, JOB, policy, CapacitySplit(), estimator, hashes, checkpoints))


@pytest.fixture(scope="module")
def alone(tiny_model):
    """The run that nothing disturbs."""
    hashes = VersionHashes()
    train(tiny_model, NoBorrow(), hashes)
    assert len(hashes.parameters) == len(set(hashes.parameters.values())) == 10
    return hashes


def test_training_is_bit_identical_with_borrowing_revocations_and_a_killed_engine(tiny_model, alone):
    disturbed = KillingHashes(Role.ROLLOUTER, 3)
    summary = train(tiny_model, RandomLeases(seed=1), disturbed)
    assert first_difference(alone, disturbed) is None
    assert disturbed.num_leases
    assert summary["restarts"] == {"rollouter@rollpool:0": 1}
    assert summary["groups"]["issued"] == summary["groups"]["consumed"] + summary["groups"]["in_flight"]


def test_a_run_whose_primary_trainer_was_killed_is_resumed_bit_for_bit(tiny_model, alone, tmp_path):
    killed, resumed = KillingHashes(Role.TRAINER, 7), VersionHashes()
    with pytest.raises(LearnerLost, match="trainer@trainpool:0"):
        train(tiny_model, RandomLeases(seed=2), killed, DirectoryCheckpoints(tmp_path, 3))
    newest, torn = latest_checkpoint(tmp_path)
    assert (newest.name, torn) == ("step-00000006", [])
    train(tiny_model, RandomLeases(seed=3), resumed, DirectoryCheckpoints(tmp_path, 0, newest))
    assert sorted(resumed.parameters) == [7, 8, 9, 10]
    for version, digest in (killed.parameters | resumed.parameters).items():
        assert digest == alone.parameters[version]
