"""The recorder that fills a run directory. Everything is on disk as soon as it has happened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bidirl.core.records import Recorder, Row
from bidirl.core.topology import Topology
from bidirl.runtime.outputs.decision_log import DecisionWriter
from bidirl.runtime.outputs.jsonl import RowWriter, write_atomically
from bidirl.runtime.outputs.trace import TraceWriter


class FileRecorder(Recorder):
    """Writes ``metrics``, ``decisions``, ``ledger``, ``leases`` (JSON lines), ``trace.json`` and ``summary.json``."""

    def __init__(self, directory: Path, topology: Topology, world: str) -> None:
        self.directory = directory
        self._metrics = RowWriter(directory / "metrics.jsonl")
        self._decisions = DecisionWriter(directory / "decisions.jsonl")
        self._ledger = RowWriter(directory / "ledger.jsonl")
        self._leases = RowWriter(directory / "leases.jsonl")
        self._trace = TraceWriter(directory / "trace.json", topology, world)

    def activity(self, device: int, activity: str, start_seconds: float, end_seconds: float, detail: str = "") -> None:
        """One interval in the lane of the device."""
        self._trace.activity(device, activity, start_seconds, end_seconds, detail)

    def decision(self, row: Row) -> None:
        """A row, and an instant in the trace."""
        self._decisions.write(row)
        verdict = "admit" if row.get("admit") else "refuse"
        arguments = {key: row[key] for key in ("reason", "cause", "benefit_seconds", "cost_seconds") if key in row}
        name = f"{verdict} {row.get('direction', '')}".strip()
        self._trace.instant(name, float(row.get("seconds", 0.0)), arguments)

    def ledger(self, row: Row) -> None:
        """A row."""
        self._ledger.write(row)

    def step(self, row: Mapping[str, float]) -> None:
        """A row, and the version over time in the trace."""
        self._metrics.write(row)
        if "time_seconds" in row:
            self._trace.counter("version", row["time_seconds"], {"version": row.get("version", 0.0)})

    def lease(self, row: Row) -> None:
        """A row."""
        self._leases.write(row)

    def close(self, summary: Row) -> None:
        """Write the summary last: where it exists without ``error``, the run is complete."""
        for writer in (self._metrics, self._decisions, self._ledger, self._leases, self._trace):
            writer.close()
        write_atomically(self.directory / "summary.json", summary)
