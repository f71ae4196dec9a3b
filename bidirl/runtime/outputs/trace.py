"""The trace of a run in the Chrome trace format (array form), one lane per device; opens in Perfetto.

The array form may lack its closing bracket, so the file can be read at any moment, after a crash too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bidirl.core.topology import Pool, Topology
from bidirl.runtime.outputs.jsonl import dumps

# Names of the trace viewer's own palette; Perfetto colours by name where it ignores them.
COLOURS = {
    "train": "thread_state_running",
    "rollout": "rail_response",
    "borrowed_train": "thread_state_iowait",
    "borrowed_rollout": "rail_animation",
    "switch": "terrible",
}
DECISIONS_LANE = 1_000_000


def device_name(topology: Topology, device: int) -> str:
    """The name of a device's lane."""
    pool = Pool.ROLL if device in topology.rollpool else Pool.TRAIN
    return f"{pool.value} device {device}"


class TraceWriter:
    """Appends events as they come. Times are given in seconds and written in microseconds."""

    def __init__(self, path: Path, topology: Topology, world: str) -> None:
        self._stream = path.open("x", encoding="utf-8")
        self._stream.write("[\n")
        self._first = True
        label = "bidirl (simulated)" if world == "sim" else "bidirl"
        self._event({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": label}})
        lanes = [(device, device_name(topology, device)) for device in (*topology.rollpool, *topology.trainpool)]
        for order, (lane, name) in enumerate([*lanes, (DECISIONS_LANE, "decisions")]):
            self._event({"ph": "M", "name": "thread_name", "pid": 0, "tid": lane, "args": {"name": name}})
            self._event({"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": lane, "args": {"sort_index": order}})

    def activity(self, device: int, activity: str, start_seconds: float, end_seconds: float, detail: str) -> None:
        """One interval of a device; idle time is left blank."""
        if activity == "idle":
            return
        self._event(
            {
                "ph": "X",
                "name": activity,
                "cat": activity,
                "cname": COLOURS.get(activity, "generic_work"),
                "pid": 0,
                "tid": device,
                "ts": start_seconds * 1e6,
                "dur": max(0.0, end_seconds - start_seconds) * 1e6,
                "args": {"detail": detail},
            }
        )

    def instant(self, name: str, seconds: float, arguments: dict[str, Any]) -> None:
        """A moment in the decisions lane."""
        event = {"ph": "i", "s": "t", "name": name, "pid": 0, "tid": DECISIONS_LANE, "ts": seconds * 1e6}
        self._event({**event, "args": arguments})

    def counter(self, name: str, seconds: float, values: dict[str, float]) -> None:
        """A value over time."""
        self._event({"ph": "C", "name": name, "pid": 0, "tid": 0, "ts": seconds * 1e6, "args": values})

    def _event(self, event: dict[str, Any]) -> None:
        self._stream.write(("" if self._first else ",\n") + dumps(event))
        self._first = False
        self._stream.flush()

    def close(self) -> None:
        """Close the array; idempotent."""
        if not self._stream.closed:
            self._stream.write("\n]\n")
            self._stream.close()


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Events of a trace, complete or cut off by a crash."""
    text = path.read_text(encoding="utf-8").strip()
    events = []
    for line in text.removeprefix("[").removesuffix("]").splitlines():
        try:
            events.append(json.loads(line.rstrip().rstrip(",")))
        except json.JSONDecodeError:
            continue
    return events
