"""Helpers that run the real coordinator over the simulated cluster and keep everything it reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bidirl.core.coordinator import run_job
from bidirl.core.interfaces import AdmissionPolicy, Splitter
from bidirl.core.job import JobSettings
from bidirl.core.opportunity import Decision, LeaseView, Opportunity
from bidirl.core.records import Recorder
from bidirl.core.topology import Topology, build_topology
from bidirl.models.estimator import Estimator
from bidirl.models.sim_timings import SimTimings
from bidirl.policies.splitters import CapacitySplit
from bidirl.runtime.sim.cluster import SimCluster
from bidirl.runtime.sim.faults import FaultPlan
from bidirl.runtime.sim.soak import small_timings as timings
from bidirl.runtime.sim.virtual_time import run_virtual
from bidirl.runtime.sim.workload import LognormalWorkload

MAX_RESPONSE_TOKENS = 200


class RandomPolicy(AdmissionPolicy):
    """Admits and revokes at random: the scheduler must be right whatever a policy says."""

    def __init__(self, *, seed: int = 0, admit: float = 0.7, revoke: float = 0.1) -> None:
        self.generator = np.random.default_rng(seed)
        self.admit = admit
        self.revoke = revoke

    def decide(self, opportunity: Opportunity) -> Decision:
        """A coin."""
        return Decision(bool(self.generator.random() < self.admit), "coin")

    def release(self, lease: LeaseView, opportunity: Opportunity | None) -> bool:
        """Another coin."""
        return bool(self.generator.random() < self.revoke)


@dataclass
class Recorded(Recorder):
    """Keeps every row in memory."""

    activities: list[tuple[int, str, float, float, str]] = field(default_factory=list)
    decisions: list[Any] = field(default_factory=list)
    groups: list[Any] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    leases: list[Any] = field(default_factory=list)
    summaries: list[Any] = field(default_factory=list)

    def activity(self, device: int, activity: str, start_seconds: float, end_seconds: float, detail: str = "") -> None:
        """Keep it."""
        self.activities.append((device, activity, start_seconds, end_seconds, detail))

    def decision(self, row: Any) -> None:
        """Keep it."""
        self.decisions.append(row)

    def ledger(self, row: Any) -> None:
        """Keep it."""
        self.groups.append(row)

    def step(self, row: Any) -> None:
        """Keep it."""
        self.steps.append(row)

    def lease(self, row: Any) -> None:
        """Keep it."""
        self.leases.append(row)

    def close(self, summary: Any) -> None:
        """Keep it."""
        self.summaries.append(summary)


def estimator() -> Estimator:
    """Fresh models with the shipped defaults."""
    return Estimator.calibrated(MAX_RESPONSE_TOKENS)


def simulate(
    settings: JobSettings,
    policy: AdmissionPolicy,
    topology: Topology | None = None,
    splitter: Splitter | None = None,
    world: SimTimings | None = None,
    success_probability: float = 0.5,
    sigma: float = 0.7,
    max_num_seqs: int = 16,
    faults: FaultPlan | None = None,
) -> tuple[dict[str, Any], Recorded]:
    """Run the job in virtual time; its summary and everything it reported."""
    workload = LognormalWorkload(
        group_size=settings.group_size,
        max_response_tokens=MAX_RESPONSE_TOKENS,
        median_response_tokens=40.0,
        sigma=sigma,
        median_prompt_tokens=20.0,
        groups_per_batch=settings.groups_per_batch,
        success_probability=success_probability,
        seed=settings.seed,
    )
    cluster = SimCluster(
        topology or build_topology(1, 1),
        workload,
        world or timings(),
        max_num_seqs=max_num_seqs,
        seed=settings.seed,
        faults=faults,
    )
    recorder = Recorded()
    job = run_job(cluster, settings, policy, splitter or CapacitySplit(), estimator(), recorder)
    return run_virtual(job), recorder
