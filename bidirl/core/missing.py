"""The sequences that a batch lacks, as arrays: every opportunity sums them up, so they are kept, not collected anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bidirl.core.groups import Group

_FINISHED = -1


@dataclass(frozen=True, slots=True)
class MissingSequences:
    """Unfinished sequences of the missing groups.

    Attributes:
        num_groups: groups that they belong to.
        generated: response tokens so far, shape ``(n,)``.
        resident: whether an engine holds the sequence's context now, shape ``(n,)``.
    """

    num_groups: int
    generated: NDArray[np.int64]
    resident: NDArray[np.bool_]

    @classmethod
    def fresh(cls, num_groups: int, group_size: int) -> MissingSequences:
        """Groups that nobody has started."""
        count = num_groups * group_size
        return cls(num_groups, np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_))


class UnfinishedTable:
    """One row per unfinished group: what its samples had when a worker last said so, and whether one runs it now."""

    def __init__(self, group_size: int) -> None:
        self._rows: dict[int, int] = {}
        self._free: list[int] = []
        self._generated = np.full((0, group_size), _FINISHED, dtype=np.int64)
        self._running = np.zeros(0, dtype=np.bool_)

    def put(self, group: Group) -> None:
        """A group is new, or came back from a worker. It waits."""
        row = self._rows.get(group.group_id)
        if row is None:
            row = self._rows[group.group_id] = self._take_row()
        self._generated[row] = [_FINISHED if sample.finished else sample.num_tokens for sample in group.samples]
        self._running[row] = False

    def run(self, group_id: int) -> None:
        """A worker took the group up."""
        self._running[self._rows[group_id]] = True

    def remove(self, group_id: int) -> None:
        """The group has finished or was dropped."""
        self._free.append(self._rows.pop(group_id))

    def select(self, group_ids: Sequence[int], num_fresh: int) -> MissingSequences:
        """The unfinished sequences of these groups, and of ``num_fresh`` that are not issued yet."""
        rows = [self._rows[group_id] for group_id in group_ids]
        size = self._generated.shape[1]
        generated, running = self._generated[rows].ravel(), self._running[rows].repeat(size)
        unfinished = generated != _FINISHED
        fresh = MissingSequences.fresh(num_fresh, size)
        return MissingSequences(
            len(rows) + num_fresh,
            np.concatenate((generated[unfinished], fresh.generated)),
            np.concatenate((running[unfinished], fresh.resident)),
        )

    def _take_row(self) -> int:
        if not self._free:
            count, size = self._generated.shape
            more = max(64, count)
            self._generated = np.concatenate((self._generated, np.full((more, size), _FINISHED, dtype=np.int64)))
            self._running = np.concatenate((self._running, np.zeros(more, dtype=np.bool_)))
            self._free.extend(range(count + more - 1, count - 1, -1))
        return self._free.pop()
