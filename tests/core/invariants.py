"""What must hold of a finished run in either world (DESIGN §5), checked on what it reported."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bidirl.core.job import JobSettings
from bidirl.core.staleness import StalenessBound
from tests.core.worlds import Recorded


def check_invariants(job: JobSettings, summary: dict[str, Any], recorded: Recorded, num_devices: int) -> None:
    """Invariants 1, 3, 4, 7 (versions), 8 and 9 on what a finished run reported."""
    issued = [row["group_id"] for row in recorded.groups if row["event"] == "issued"]
    closed = [row["group_id"] for row in recorded.groups if row["event"] != "issued"]
    consumed = [row for row in recorded.groups if row["event"] == "consumed"]
    assert sorted(issued) == list(range(len(issued)))
    assert len(set(closed)) == len(closed)
    assert set(closed) <= set(issued)
    assert len(consumed) == job.num_steps * job.groups_per_batch
    groups = summary["groups"]
    assert groups["issued"] == groups["consumed"] + groups["dropped"] + groups["in_flight"]
    bound = StalenessBound(job.staleness, job.groups_per_batch)
    for step in range(job.num_steps):
        batch = [row for row in consumed if row["step"] == step]
        assert len(batch) == job.groups_per_batch
        assert bound.allows([row["staleness"] for row in batch])
        for row in batch:
            assert row["staleness"] == step - min(v for sample in row["versions"] for v, _ in sample)
            assert all(sum(n for _, n in s) == t for s, t in zip(row["versions"], row["response_tokens"], strict=True))
            assert all(v == sorted(v) for v in ([v for v, _ in sample] for sample in row["versions"]))
    # Real clocks go on between the two readings.
    tolerance = 0.05 if summary["world"] == "ray" else 1e-6
    elapsed = pytest.approx(num_devices * summary["wall_seconds"], rel=1e-6, abs=tolerance)
    assert sum(summary["device_seconds"].values()) == elapsed
    for device in range(num_devices):
        mine = sorted(row[2:4] for row in recorded.activities if row[0] == device)
        assert all(a[1] == b[0] for a, b in pairwise(mine))
    assert [row["version"] for row in recorded.steps] == list(range(1, job.num_steps + 1))
