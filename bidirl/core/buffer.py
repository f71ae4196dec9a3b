"""The rollout buffer: unfinished and finished groups, and which B of them form the next batch."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence

from bidirl.core.errors import InvariantError
from bidirl.core.groups import Group
from bidirl.core.staleness import StalenessBound


class RolloutBuffer:
    """Knows every group that was issued and not yet consumed or dropped.

    ``pinned`` consumption takes groups strictly in order; otherwise the oldest finished groups go first (by oldest
    version, then by completion), and a batch waits for every group that a later step would find too old.
    """

    def __init__(self, bound: StalenessBound, pinned: bool) -> None:
        self._bound = bound
        self._pinned = pinned
        self._unfinished: dict[int, int] = {}
        self._unfinished_by_version: Counter[int] = Counter()
        self._unfinished_by_age: list[tuple[int, int]] = []
        self._finished: dict[int, Group] = {}
        self._finished_by_version: Counter[int] = Counter()
        self._next_in_order = 0
        self._dropped: set[int] = set()

    @property
    def num_finished(self) -> int:
        """Finished groups waiting to be consumed."""
        return len(self._finished)

    @property
    def oldest_unfinished_version(self) -> int | None:
        """The smallest version under which an unfinished group was started; ``None`` if there is none."""
        return min(self._unfinished_by_version, default=None)

    @property
    def unfinished_ids(self) -> tuple[int, ...]:
        """Issued groups that are not finished, in the order in which they were issued."""
        return tuple(self._unfinished)

    @property
    def finished(self) -> tuple[Group, ...]:
        """Finished groups that wait to be consumed, in the order in which they finished."""
        return tuple(self._finished.values())

    @property
    def dropped_ids(self) -> tuple[int, ...]:
        """Dropped groups of pinned batches that were not taken yet."""
        return tuple(sorted(self._dropped))

    def restore(
        self, unfinished: Sequence[Group], finished: Sequence[Group], dropped_ids: Sequence[int], num_batches: int
    ) -> None:
        """Go on from a checkpoint, after ``num_batches`` batches."""
        for group in (*unfinished, *finished):
            self.issue(group)
        for group in finished:
            self.finish(group)
        self._dropped = set(dropped_ids)
        if self._pinned:
            self._next_in_order = num_batches * self._bound.groups_per_batch

    def issue(self, group: Group) -> None:
        """A group has been issued."""
        self._unfinished[group.group_id] = group.started_version
        insort(self._unfinished_by_age, (group.started_version, group.group_id))
        self._unfinished_by_version[group.started_version] += 1

    def finish(self, group: Group) -> None:
        """A group has finished."""
        self._forget_unfinished(group.group_id)
        self._finished[group.group_id] = group
        self._finished_by_version[group.oldest_version] += 1

    def drop(self, group_id: int) -> None:
        """An unfinished group leaves. In pinned consumption its batch becomes smaller by it."""
        self._forget_unfinished(group_id)
        if self._pinned:
            self._dropped.add(group_id)

    def _forget_unfinished(self, group_id: int) -> None:
        version = self._unfinished.pop(group_id, None)
        if version is None:
            raise InvariantError(1, f"group {group_id} finished but was not running")
        del self._unfinished_by_age[bisect_left(self._unfinished_by_age, (version, group_id))]
        self._unfinished_by_version[version] -= 1
        if not self._unfinished_by_version[version]:
            del self._unfinished_by_version[version]

    def num_missing(self, version: int) -> int:
        """Q_r: groups that must still finish before the batch of ``version`` can be formed."""
        size = self._bound.groups_per_batch
        if self._pinned:
            wanted = range(self._next_in_order, self._next_in_order + size)
            return sum(i not in self._finished and i not in self._dropped for i in wanted)
        return max(size - len(self._finished), self._must_wait_for(version))

    def missing_ids(self, version: int) -> tuple[int, ...]:
        """Unfinished issued groups that the next batch waits for, oldest first; fresh groups are not among them."""
        missing = self.num_missing(version)
        if self._pinned:
            last = self._next_in_order + self._bound.groups_per_batch
            return tuple(sorted(i for i in self._unfinished if i < last))[:missing]
        return tuple(group_id for _, group_id in self._unfinished_by_age[:missing])

    def take_batch(self, version: int) -> tuple[Group, ...] | None:
        """Remove and return the batch of ``version``, or ``None`` while it cannot be formed.

        Raises:
            InvariantError: if the staleness bound would be broken (3).
        """
        if self.num_missing(version) > 0:
            return None
        size = self._bound.groups_per_batch
        if self._pinned:
            wanted = range(self._next_in_order, self._next_in_order + size)
            ids = [group_id for group_id in wanted if group_id not in self._dropped]
            self._dropped.difference_update(wanted)
            self._next_in_order += size
        else:
            order = enumerate(self._finished.values())
            ranked = sorted((group.oldest_version, position, group.group_id) for position, group in order)
            ids = [group_id for _, _, group_id in ranked[:size]]
        batch = tuple(self._finished.pop(group_id) for group_id in ids)
        self._finished_by_version.subtract(group.oldest_version for group in batch)
        staleness = [version - group.oldest_version for group in batch]
        if not self._bound.allows(staleness):
            worst = sorted(staleness, reverse=True)[:5]
            raise InvariantError(3, f"batch of version {version} would have staleness {worst}")
        if not self._pinned:
            self._check_left(version)
        return batch

    def _must_wait_for(self, version: int) -> int:
        """Unfinished groups without which the bound would break at this or a later step."""
        bound, needed = self._bound, 0
        for ahead in range(-1, bound.whole + 1):
            limit = bound.last_oldest(version, ahead)
            finished = sum(n for v, n in self._finished_by_version.items() if v <= limit)
            unfinished = sum(n for v, n in self._unfinished_by_version.items() if v <= limit)
            required = finished + unfinished - bound.may_be_left(ahead)
            needed = max(needed, required - finished)
        return needed

    def _check_left(self, version: int) -> None:
        """After a batch was taken, what is left must fit into the coming batches in time."""
        for ahead in range(-1, self._bound.whole + 1):
            limit, allowed = self._bound.last_oldest(version, ahead), self._bound.may_be_left(ahead)
            left = sum(n for v, n in self._finished_by_version.items() if v <= limit)
            left += sum(n for v, n in self._unfinished_by_version.items() if v <= limit)
            if left > allowed:
                raise InvariantError(
                    3, f"{left} groups of version {limit} or older are left after {version}: > {allowed}"
                )
