"""Deterministic simulation testing: the real coordinator under faults that a seed chooses.

A *schedule* is everything that one seed decides: the job, the topology, what things take, the policy and the faults.
It must end with all steps done and the books balanced, or with an error that names a fault that cannot be survived. In
pinned consumption the batches must be those of the same job without faults and without borrowing.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from bidirl.core.coordinator import run_job
from bidirl.core.errors import LearnerLost
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.job import JobSettings
from bidirl.core.leases import LeaseState
from bidirl.core.records import Recorder, Row
from bidirl.core.staleness import StalenessBound
from bidirl.core.topology import Topology, build_topology
from bidirl.core.work import SwitchCost
from bidirl.models.estimator import Estimator
from bidirl.models.sim_timings import RolloutTimings, SimTimings
from bidirl.models.trainer_base import SubStageCost
from bidirl.policies.baselines import NoBorrow
from bidirl.policies.random_leases import RandomLeases
from bidirl.policies.splitters import CapacitySplit
from bidirl.runtime.sim.cluster import SimCluster
from bidirl.runtime.sim.faults import FaultPlan, SeededFaults
from bidirl.runtime.sim.virtual_time import run_virtual
from bidirl.runtime.sim.workload import LognormalWorkload

SURVIVED = ("generate", "interrupt", "load_weights", "switch_in", "switch_out", "merge_gradients", "restart", "reward")
"""Verbs of which any fault is survived; ``train_chunks`` is, too, on auxiliaries."""
FATAL = ("begin_batch", "optimizer_step", "export_weights")
"""Verbs of the primary trainers: a fault ends the run."""

_MAX_TOKENS = 120


@dataclass
class Books(Recorder):
    """What a schedule reported, as far as it is checked."""

    groups: list[Row] = field(default_factory=list)
    leases: list[Row] = field(default_factory=list)

    def ledger(self, row: Row) -> None:
        """Keep it."""
        self.groups.append(row)

    def lease(self, row: Row) -> None:
        """Keep it."""
        self.leases.append(row)


@dataclass(frozen=True)
class Schedule:
    """One seed, spelled out."""

    seed: int
    job: JobSettings
    topology: Topology
    timings: SimTimings
    policy: AdmissionPolicy
    faults: FaultPlan | None


@dataclass(frozen=True)
class Outcome:
    """How a schedule ended: ``completed``, or ``ended`` by the named fault of a primary trainer."""

    kind: str
    injected: Counter[tuple[str, str]]
    digests: dict[int, str]


def small_timings(rollout: float = 1.0, train: float = 1.0, switch: float = 0.05) -> SimTimings:
    """A small world in which a batch takes seconds; factors of both stages, and C_in in seconds."""
    return SimTimings(
        rollout=RolloutTimings(1e-5, 5e-3, 5e-4, 1e-7).scaled(rollout),
        ref_logprob=SubStageCost(0.005, 0.1 * train),
        actor_update=SubStageCost(0.01, 0.4 * train),
        rollouter_on_trainpool=SwitchCost(switch, switch / 2),
        trainer_on_rollpool=SwitchCost(switch, switch / 2, switch / 4),
        begin_batch_seconds=0.01,
        optimizer_step_seconds=0.05,
        export_seconds=0.02,
        load_weights_seconds=0.03,
    )


def make_schedule(seed: int, fatal: bool | None = None) -> Schedule:
    """The schedule of a seed. ``fatal``: whether primary trainers may fail; ``None`` lets one seed in ten."""
    dice = random.Random(seed)
    pinned = dice.random() < 0.3
    job = JobSettings(
        num_steps=dice.randint(1, 5),
        groups_per_batch=dice.randint(1, 6),
        group_size=dice.randint(2, 4),
        staleness=dice.choice((0, 1, 2) if pinned else (0, 0.5, 1, 2)),
        consumption="pinned" if pinned else "first_ready",
        on_weight_update=dice.choice(("interrupt", "finish")),
        max_tokens_per_chunk=dice.choice((32, 64, 256)),
        max_groups_per_rollouter=dice.randint(0, 3),
        calibration_steps=0,
        probe_switches=0,
        watchdog_seconds=10_000.0,
        max_degenerate_batches=60,
        max_worker_restarts=1_000,
        record_digests=True,
        seed=seed,
    )
    train, switch = dice.choice((0.1, 1.0, 5.0)), dice.choice((0.0, 0.05, 0.5))
    timings = replace(
        small_timings(dice.choice((0.2, 1.0, 5.0)), train, switch),
        startup_seconds=dice.choice((0.0, 1.0)),
        generate_overhead_seconds=dice.choice((0.0, 0.01)),
    )
    roll, trainers = dice.choice(((1, 1), (2, 1), (1, 2), (2, 2), (3, 2)))
    may_end = fatal if fatal is not None else dice.random() < 0.1
    verbs = (*SURVIVED, "train_chunks", *(FATAL if may_end else ()))
    if pinned and dice.random() < 0.7:
        verbs = tuple(verb for verb in verbs if verb != "reward")
    faults = SeededFaults(
        seed,
        dice.choice((0.0, 0.02, 0.1, 0.3)),
        verbs,
        longest_seconds=dice.choice((0.05, 0.5, 5.0)),
        not_before_seconds=timings.startup_seconds,
        spared_workers=() if may_end else ("trainer@trainpool:0",),
    )
    policy = RandomLeases(seed=seed, admit_probability=0.8, revoke_probability=dice.choice((0.0, 0.1)))
    return Schedule(seed, job, build_topology(roll, trainers), timings, policy, faults)


def run_schedule(schedule: Schedule) -> Outcome:
    """Run one schedule and check its books.

    Raises:
        AssertionError, BidirlError: what is wrong; the seed reproduces it.
    """
    job, books = schedule.job, Books()
    workload = LognormalWorkload(
        group_size=job.group_size,
        max_response_tokens=_MAX_TOKENS,
        median_response_tokens=25.0,
        sigma=0.8,
        median_prompt_tokens=12.0,
        groups_per_batch=job.groups_per_batch,
        success_probability=0.5,
        seed=schedule.seed,
    )
    world = SimCluster(
        schedule.topology, workload, schedule.timings, max_num_seqs=12, seed=schedule.seed, faults=schedule.faults
    )
    estimator = Estimator.calibrated(_MAX_TOKENS)
    kind = "completed"
    try:
        summary = run_virtual(run_job(world, job, schedule.policy, CapacitySplit(), estimator, books))
    except LearnerLost:
        kind = "ended"
    else:
        check_finished(schedule, summary, books)
    check_ledger(books)
    digests = {row["version"]: row["parameters"] for row in books.groups if row["event"] == "stepped"}
    injected = schedule.faults.injected if isinstance(schedule.faults, SeededFaults) else Counter()
    if (
        schedule.faults is not None
        and job.consumption == "pinned"
        and not any(verb == "reward" for verb, _ in injected)
    ):
        undisturbed = run_schedule(replace(schedule, policy=NoBorrow(), faults=None)).digests
        for version, digest in digests.items():
            assert digest == undisturbed[version], f"version {version} differs from the undisturbed run"
    return Outcome(kind, injected, digests)


def check_ledger(books: Books) -> None:
    """Issued once each, closed at most once (invariant 1)."""
    issued = [row["group_id"] for row in books.groups if row["event"] == "issued"]
    closed = [row["group_id"] for row in books.groups if row["event"] in ("consumed", "dropped")]
    assert issued == list(range(len(issued))), "groups were issued twice or out of order"
    assert len(set(closed)) == len(closed), "a group was closed twice"
    assert set(closed) <= set(issued), "a group was closed that was never issued"


def check_finished(schedule: Schedule, summary: dict[str, Any], books: Books) -> None:
    """All steps were done, within the staleness bound, nothing is open, device-seconds add up."""
    job, bound = schedule.job, StalenessBound(schedule.job.staleness, schedule.job.groups_per_batch)
    consumed = [row for row in books.groups if row["event"] == "consumed"]
    groups = summary["groups"]
    assert summary["steps"] == job.num_steps, f"{summary['steps']} of {job.num_steps} steps"
    assert groups["issued"] == groups["consumed"] + groups["dropped"] + groups["in_flight"], f"ledger: {groups}"
    for step in range(job.num_steps):
        batch = [row for row in consumed if row["step"] == step]
        full = job.consumption == "first_ready"
        assert len(batch) == job.groups_per_batch or (batch and not full), f"batch {step} has {len(batch)} groups"
        assert bound.allows([row["staleness"] for row in batch]), f"batch {step} is too stale"
    ends = {row["state"] for row in books.leases}
    assert ends <= {LeaseState.CLOSED, LeaseState.ROLLED_BACK}, f"a lease ended in {ends}"
    total = schedule.topology.num_devices * summary["wall_seconds"]
    spent = sum(summary["device_seconds"].values())
    assert abs(spent - total) <= 1e-6 * max(total, 1.0), f"{spent} device-seconds of {total}"
