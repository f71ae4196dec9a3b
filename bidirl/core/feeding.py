"""Feeding: which group starts where, within the staleness capacity; and weight updates of the primary rollouters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from bidirl.core.devices import Activity
from bidirl.core.errors import WorkerError
from bidirl.core.groups import Group, new_group
from bidirl.core.missing import MissingSequences, UnfinishedTable
from bidirl.core.opportunity import MissingGroup
from bidirl.core.rollouter import Rollouter
from bidirl.core.state import RunState
from bidirl.core.topology import Worker


class Feeder:
    """Owns every unfinished group: waiting here, or running on one rollouter.

    Waiting groups go out oldest first. A group that is ``reserved`` waits for the auxiliaries of one lease.
    """

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.primaries = [Rollouter(state, w, 0, None) for w in state.cluster.topology.primary_rollouters]
        self.auxiliaries: dict[Worker, Rollouter] = {}
        self._waiting: dict[int, Group] = {}
        self._reserved: dict[int, None] = {}
        self._places: dict[int, Rollouter] = {}
        self._table = UnfinishedTable(state.settings.group_size)
        self.next_group_id = 0
        self.num_finished = 0
        self.resolved_versions: list[int] = [0]
        limit = state.cluster.max_num_seqs // state.settings.group_size
        self.max_groups = state.settings.max_groups_per_rollouter or max(1, limit)

    # -- which groups may start --------------------------------------------------------------------------------------

    def batch_resolved(self) -> None:
        """A batch was consumed or dropped (pinned consumption counts both)."""
        self.resolved_versions.append(self.state.version)

    def _may_start_fresh(self, served: int) -> bool:
        if self._num_left() <= 0:
            return False
        if self.state.settings.consumption == "pinned":
            return self._pinned_version(self.next_group_id) == served
        return self._num_started() < self.state.bound.capacity(served)

    def _num_started(self) -> int:
        return self.state.ledger.num_issued - self.state.ledger.num_dropped

    def _num_left(self) -> int:
        """Groups that the rest of the job still has to issue.

        A dropped group is made up for by another one; in pinned consumption only a batch that led to no step is.
        """
        settings = self.state.settings
        if settings.consumption != "pinned":
            return settings.num_steps * settings.groups_per_batch - self._num_started()
        without_step = len(self.resolved_versions) - 1 - self.state.version
        return (settings.num_steps + without_step) * settings.groups_per_batch - self.next_group_id

    def _pinned_version(self, group_id: int) -> int | None:
        """The version that must generate a group, or ``None`` while it is not yet decided."""
        resolved = max(0, group_id // self.state.settings.groups_per_batch - self.state.bound.whole)
        return self.resolved_versions[resolved] if resolved < len(self.resolved_versions) else None

    def _issue(self, version: int) -> Group:
        group = new_group(self.state.cluster.prompt(self.next_group_id), self.state.settings.group_size, version)
        self.next_group_id += 1
        self.state.ledger.issue(group.group_id, version, self.state.now_seconds())
        self.state.buffer.issue(group)
        self._wait(group)
        return group

    def _wait(self, group: Group) -> None:
        self._waiting[group.group_id] = group
        self._table.put(group)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def open_group(self, group_id: int) -> Group:
        """An unfinished group, as far as it is known here."""
        place = self._places.get(group_id)
        return self._waiting[group_id] if place is None else place.running[group_id]

    def older_versions(self) -> range:
        """Versions older than the present one that a rollouter of a resumed run would have to load."""
        version = self.state.version
        return range(version if self.state.settings.consumption != "pinned" else self._oldest_pinned(), version)

    def restore(self, next_group_id: int, resolved_versions: Sequence[int], waiting: Sequence[Group]) -> None:
        """Go on from a checkpoint: unfinished groups wait for a rollouter."""
        self.next_group_id = next_group_id
        self.resolved_versions = list(resolved_versions)
        for group in waiting:
            self._wait(group)

    # -- feeding -----------------------------------------------------------------------------------------------------

    def on_event(self, cause: str) -> None:
        """Fill every free slot, least loaded rollouter first; start weight updates that are due."""
        due = self._due_version()
        for rollouter in self.primaries:
            if rollouter.lost or (due is not None and rollouter.served != due):
                self._start_update(rollouter)
        if not self._may_feed():
            return
        free = [(len(r.running), i, r) for i, r in enumerate(self._active()) if r.accepting]
        free = [entry for entry in free if entry[0] < self.max_groups]
        heapify(free)
        dry: set[tuple[bool, int]] = set()  # what one replica cannot start, its like cannot either
        while free:
            load, place, rollouter = heappop(free)
            kind = (rollouter.worker.primary, rollouter.served)
            if kind in dry:
                continue
            if not self._feed_one(rollouter):
                dry.add(kind)
            elif load + 1 < self.max_groups:
                heappush(free, (load + 1, place, rollouter))

    def _may_feed(self) -> bool:
        """Whether any group could start on any replica. Cheap: most events find nothing."""
        pinned = self.state.settings.consumption == "pinned"
        return bool(self._waiting) or pinned or self._may_start_fresh(self.state.exported)

    def _active(self) -> list[Rollouter]:
        lent = self.state.board.lent
        primaries = [r for r in self.primaries if lent.isdisjoint(r.worker.devices)] if lent else self.primaries
        return [*primaries, *self.auxiliaries.values()]

    def _feed_one(self, rollouter: Rollouter) -> bool:
        group = self._next_for(rollouter)
        if group is None:
            return False
        del self._waiting[group.group_id]
        self._reserved.pop(group.group_id, None)
        rollouter.running[group.group_id] = group
        self._places[group.group_id] = rollouter
        self._table.run(group.group_id)
        rollouter.show()
        self.state.spawn(self._run(rollouter, group), f"generate group {group.group_id} on {rollouter.worker.name}")
        return True

    def _next_for(self, rollouter: Rollouter) -> Group | None:
        if not rollouter.worker.primary:
            return next((self._waiting[i] for i in self._reserved if i in self._waiting), None)
        eligible = [i for i, g in self._waiting.items() if i not in self._reserved and self._fits(g, rollouter.served)]
        if eligible:
            return self._waiting[min(eligible)]
        return self._issue(rollouter.served) if self._may_start_fresh(rollouter.served) else None

    def _fits(self, group: Group, served: int) -> bool:
        if self.state.settings.consumption == "pinned":
            return group.started_version == served
        return group.started_version <= served

    def has_work_for(self, rollouter: Rollouter) -> bool:
        """Whether this primary could start something now."""
        waiting = any(i not in self._reserved for i in self._waiting)
        return waiting or self._may_start_fresh(rollouter.served)

    async def _run(self, rollouter: Rollouter, group: Group) -> None:
        result = await rollouter.generate(group)
        del self._places[group.group_id]
        if result.finished or result.error is not None:
            self._table.remove(group.group_id)
        for sample in result.samples:
            sample.check()
        if result.error is not None:
            self.state.buffer.drop(result.group_id)
            self.state.ledger.drop(result, result.error, self.state.now_seconds())
        elif result.finished:
            rollouter.num_finished += 1
            self.num_finished += 1
            self._reserved.pop(group.group_id, None)
            self.state.buffer.finish(result)
            for sample in result.samples:
                self.state.estimates.observe_length(sample.num_tokens)
        else:
            result = replace(result, num_interruptions=group.num_interruptions + 1)
            self._wait(result)
        self.state.notify("group_finished" if result.finished else "group_interrupted")

    # -- weight updates ----------------------------------------------------------------------------------------------

    def _start_update(self, rollouter: Rollouter) -> None:
        if rollouter.updating or not self.state.board.lent.isdisjoint(rollouter.worker.devices):
            return
        rollouter.updating = True
        self.state.spawn(self._update(rollouter), f"weight update of {rollouter.worker.name}")

    def due_version(self, rollouter: Rollouter) -> int:
        """The version that the replica should serve now.

        Pinned groups must all end under their own version before any replica leaves it, and versions come one by one.
        """
        due = self._due_version()
        return rollouter.served if due is None else due

    def _due_version(self) -> int | None:
        """What every replica should serve now; ``None`` while none has to change."""
        if self.state.settings.consumption != "pinned":
            return self.state.exported
        version = self.state.buffer.oldest_unfinished_version
        if version is None:
            version = self._pinned_version(self.next_group_id)
        return None if version is None or version > self.state.exported else version

    async def _update(self, rollouter: Rollouter) -> None:
        await rollouter.drain(interrupt=self.state.settings.on_weight_update == "interrupt")
        rollouter.close_window()
        if rollouter.lost is None:
            await self._load(rollouter, self.due_version(rollouter))
        while rollouter.lost is not None:
            self.state.board.set(rollouter.worker.devices, Activity.SWITCH, "restart")
            await self.state.restart(rollouter.worker, rollouter.lost)
            rollouter.lost = None
            await self._load(rollouter, min(self.lending_version(), self.state.exported))
        rollouter.updating = False
        rollouter.accepting = True
        rollouter.show()
        self.state.notify("weights_loaded")

    async def _load(self, rollouter: Rollouter, version: int) -> None:
        self.state.board.set(rollouter.worker.devices, Activity.SWITCH, f"load v{version}")
        began = self.state.now_seconds()
        try:
            rollouter.served = await self.state.cluster.load_weights(rollouter.worker, version)
        except WorkerError as error:
            rollouter.lose(error)
        else:
            self.state.observe_verb("load_weights", self.state.now_seconds() - began)

    # -- leases ------------------------------------------------------------------------------------------------------

    def missing(self) -> tuple[MissingGroup, ...]:
        """The groups that the next batch lacks and no auxiliary runs, issued ones first, then fresh ones.

        Fresh groups are only announced here (their ids are the next ones); ``reserve`` issues them.
        """
        ids, num_fresh = self._missing_ids(held=False)
        rows = []
        for group_id in ids:
            samples = self.open_group(group_id).samples
            tokens = tuple(sample.num_tokens for sample in samples if not sample.finished)
            rows.append(MissingGroup(group_id, group_id in self._places, len(tokens), tokens))
        size = self.state.settings.group_size
        fresh = range(self.next_group_id, self.next_group_id + num_fresh)
        return (*rows, *(MissingGroup(group_id, False, size, (0,) * size) for group_id in fresh))

    def missing_sequences(self, held: bool) -> MissingSequences:
        """What ``missing`` lists, as arrays; with the groups of auxiliaries if ``held``."""
        return self._table.select(*self._missing_ids(held))

    def _missing_ids(self, held: bool) -> tuple[Sequence[int], int]:
        """Issued groups that the next batch lacks, and how many fresh ones."""
        buffer, version = self.state.buffer, self.state.version
        ids = buffer.missing_ids(version)
        num_fresh = min(buffer.num_missing(version) - len(ids), self._num_startable(self.lending_version()))
        if not held and (self._reserved or self.auxiliaries):
            left_out = self._reserved.keys() | {i for r in self.auxiliaries.values() for i in r.running}
            ids = tuple(i for i in ids if i not in left_out)
        return ids, max(0, num_fresh)

    def _num_startable(self, version: int) -> int:
        left = self._num_left()
        if self.state.settings.consumption == "pinned":
            count = 0
            while count < left and self._pinned_version(self.next_group_id + count) == version:
                count += 1
            return count
        return max(0, min(left, self.state.bound.capacity(version) - self._num_started()))

    def oldest_needed(self) -> int:
        """The oldest version that a rollouter may still have to load, once the present one is exported."""
        if self.state.settings.consumption != "pinned":
            return self.state.version - 1
        return min(self._oldest_pinned(), self.state.version - 1)

    def _oldest_pinned(self) -> int:
        """The oldest version under which a group is still to be generated, if it is older than the present one."""
        versions = (self.state.buffer.oldest_unfinished_version, self._pinned_version(self.next_group_id))
        return min((v for v in versions if v is not None), default=self.state.version)

    def lending_version(self) -> int:
        """The version that auxiliary rollouters must load: the newest, or the one that the next batch is pinned to."""
        if self.state.settings.consumption != "pinned":
            return self.state.exported
        version = self.state.buffer.oldest_unfinished_version
        if version is None:
            version = self._pinned_version(self.next_group_id)
        return self.state.exported if version is None else version

    def reserve(self, group_ids: Sequence[int], version: int) -> tuple[Rollouter, ...]:
        """Keep these groups for the auxiliaries; returns primaries that run some of them and must be interrupted.

        Fresh groups among them are issued under ``version``, which the auxiliaries will serve.
        """
        for group_id in group_ids:
            while self.next_group_id <= group_id:
                self._issue(version)
            self._reserved[group_id] = None
        return tuple(r for r in self.primaries if any(i in r.running for i in group_ids))

    def release_reservations(self) -> None:
        """Reserved groups that nobody has started may run anywhere again."""
        self._reserved.clear()

    @property
    def num_reserved(self) -> int:
        """Groups that wait for an auxiliary."""
        return len(self._reserved)

    def reserved_on(self, rollouter: Rollouter) -> tuple[int, ...]:
        """Reserved groups that this primary still runs."""
        return tuple(i for i in self._reserved if i in rollouter.running)

    @property
    def num_auxiliary_groups(self) -> int:
        """Unfinished groups that auxiliaries run or that wait for them."""
        waiting = sum(i in self._waiting for i in self._reserved)
        return waiting + sum(len(r.running) for r in self.auxiliaries.values())
