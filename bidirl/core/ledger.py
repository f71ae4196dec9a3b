"""The exactly-once ledger: every issued group is consumed once, or dropped once with a reason (invariant 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from bidirl.core.digests import group_digest
from bidirl.core.errors import InvariantError
from bidirl.core.groups import Group


class Ledger:
    """Counts and checks the life of every group; each event is handed to ``sink`` as a row."""

    def __init__(self, sink: Callable[[Mapping[str, Any]], None]) -> None:
        self._sink = sink
        self._open: set[int] = set()
        self._closed: set[int] = set()
        self.num_issued = 0
        self.num_consumed = 0
        self.dropped: Counter[str] = Counter()

    @property
    def num_dropped(self) -> int:
        """Groups dropped, for any reason."""
        return self.dropped.total()

    @property
    def num_in_flight(self) -> int:
        """Groups issued and neither consumed nor dropped."""
        return len(self._open)

    def issue(self, group_id: int, version: int, now_seconds: float) -> None:
        """A group enters the system."""
        if group_id in self._open or group_id in self._closed:
            raise InvariantError(1, f"group {group_id} was issued twice")
        self._open.add(group_id)
        self.num_issued += 1
        self._sink({"event": "issued", "group_id": group_id, "version": version, "seconds": now_seconds})

    def consume(self, group: Group, step: int, version: int, now_seconds: float) -> None:
        """A group is trained on by ``step``, which starts from ``version``."""
        self._close(group.group_id, "consumed")
        self.num_consumed += 1
        self._sink(
            {
                "event": "consumed",
                "group_id": group.group_id,
                "step": step,
                "version": version,
                "staleness": version - group.oldest_version,
                "seconds": now_seconds,
                "prompt_tokens": group.prompt.num_tokens,
                "response_tokens": [sample.num_tokens for sample in group.samples],
                "rewards": [sample.reward for sample in group.samples],
                "interruptions": group.num_interruptions,
                "versions": [[[s.version, s.num_tokens] for s in sample.spans] for sample in group.samples],
                "digest": group_digest(group),
            }
        )

    def stepped(self, version: int, parameters: str, now_seconds: float) -> None:
        """An optimizer step led to ``version``, whose parameters have this hash."""
        self._sink({"event": "stepped", "version": version, "parameters": parameters, "seconds": now_seconds})

    def drop(self, group: Group, reason: str, now_seconds: float) -> None:
        """A group leaves without being trained on."""
        self._close(group.group_id, f"dropped ({reason})")
        self.dropped[reason] += 1
        self._sink({"event": "dropped", "group_id": group.group_id, "reason": reason, "seconds": now_seconds})

    def restore(self, num_issued: int, open_ids: set[int], num_consumed: int, dropped: Counter[str]) -> None:
        """Go on from a checkpoint: of the first ``num_issued`` groups all but ``open_ids`` are closed.

        Raises:
            InvariantError: if the counts do not add up (1).
        """
        if num_issued - len(open_ids) != num_consumed + dropped.total():
            raise InvariantError(1, f"checkpoint: {num_issued} issued, {len(open_ids)} open, {num_consumed} consumed")
        self._open = set(open_ids)
        self._closed = set(range(num_issued)) - open_ids
        self.num_issued, self.num_consumed, self.dropped = num_issued, num_consumed, dropped

    def _close(self, group_id: int, how: str) -> None:
        if group_id not in self._open:
            state = "already closed" if group_id in self._closed else "never issued"
            raise InvariantError(1, f"group {group_id} is to be {how} but was {state}")
        self._open.remove(group_id)
        self._closed.add(group_id)
