"""One simulated run of one cell under one policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bidirl.core.coordinator import run_job
from bidirl.core.interfaces import AdmissionPolicy, Splitter
from bidirl.core.records import Recorder
from bidirl.models.estimator import Estimator
from bidirl.policies.splitters import CapacitySplit
from bidirl.runtime.sim.cluster import SimCluster
from bidirl.runtime.sim.virtual_time import run_virtual
from experiments.cells.grid import Cell


def simulate(
    cell: Cell,
    policy: AdmissionPolicy,
    splitter: Splitter | None = None,
    num_steps: int = 12,
    seed: int = 0,
    recorder: Recorder | None = None,
) -> Mapping[str, Any]:
    """The summary of one run. Stage models are fitted online, as in a real run; nothing is known beforehand."""
    cluster = SimCluster(cell.topology(), cell.workload(seed), cell.timings(), max_num_seqs=64, seed=seed)
    estimates = Estimator.calibrated(cell.max_response_tokens)
    splitter = splitter if splitter is not None else CapacitySplit()
    job = run_job(cluster, cell.settings(num_steps, seed), policy, splitter, estimates, recorder or Recorder())
    summary: Mapping[str, Any] = run_virtual(job)
    return summary
