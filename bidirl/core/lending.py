"""Carrying out leases: switch in, work, drain, switch out, with rollback of a failed switch-in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from bidirl.core.devices import Activity
from bidirl.core.errors import InvariantError, PolicyError, SwitchError, WorkerError
from bidirl.core.feeding import Feeder
from bidirl.core.interfaces import Splitter
from bidirl.core.leases import Lease, LeaseState
from bidirl.core.opportunity import GroupSplitView, MissingGroup
from bidirl.core.rollouter import Rollouter
from bidirl.core.sides import Side
from bidirl.core.state import RunState
from bidirl.core.topology import Direction, Worker
from bidirl.core.training import TrainLoop


class Lender:
    """Runs every lease as a task of its own and keeps the open ones."""

    def __init__(self, state: RunState, splitter: Splitter, feeder: Feeder, trainer: TrainLoop) -> None:
        self.state = state
        self.splitter = splitter
        self.feeder = feeder
        self.trainer = trainer
        self.open: dict[int, Lease] = {}
        self.closed: list[Lease] = []
        self._ending: set[int] = set()
        trainer.reclaim = self.reclaim_trainpool

    def start(self, lease: Lease) -> None:
        """Grant the devices and run the lease."""
        self.open[lease.lease_id] = lease
        self.state.board.grant(lease.devices, lease.lease_id)
        if lease.direction is Direction.ROLLOUTER_ON_TRAINPOOL:
            interrupted = self._split(len(lease.workers), first=True)
            self.state.spawn(self._rollout_lease(lease, interrupted), f"lease {lease.lease_id} {lease.direction}")
        else:
            self.state.spawn(self._train_lease(lease), f"lease {lease.lease_id} {lease.direction}")

    def end(self, lease: Lease) -> None:
        """Ask a lease to end as soon as it can."""
        self._ending.add(lease.lease_id)
        if lease.lease_id in self.trainer.sides:
            self.trainer.sides[lease.lease_id].released = True
        self.state.changed.set()

    async def reclaim_trainpool(self) -> None:
        """The batch is ready: end every rollouter_on_trainpool lease and wait until the devices are back."""
        while leases := [x for x in self.open.values() if x.direction is Direction.ROLLOUTER_ON_TRAINPOOL]:
            for lease in leases:
                self.end(lease)
            await self.state.wait_change()

    # -- both directions ---------------------------------------------------------------------------------------------

    async def _switch_in(self, lease: Lease) -> bool:
        """Whether every worker woke up with the weights of the lease's version."""
        state, began = self.state, self.state.now_seconds()
        state.board.set(lease.devices, Activity.SWITCH, f"in {lease.direction}", lease.lease_id)
        calls = [state.cluster.switch_in(worker, lease.version) for worker in lease.workers]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for worker, result in zip(lease.workers, results, strict=True):
            if isinstance(result, BaseException) and not isinstance(result, WorkerError):
                raise result
            if not isinstance(result, BaseException) and result != lease.version:
                raise InvariantError(8, f"{worker.name} confirmed version {result}, not {lease.version}")
        failed = {w: r for w, r in zip(lease.workers, results, strict=True) if isinstance(r, WorkerError)}
        if failed:
            rolled_back = [worker for worker, error in failed.items() if isinstance(error, SwitchError)]
            rest = [worker for worker in lease.workers if worker not in rolled_back]
            await asyncio.gather(*(self._send_home(worker, failed.get(worker)) for worker in rest))
            self._finish(lease, LeaseState.ROLLED_BACK)
            return False
        lease.in_seconds = state.now_seconds() - began
        state.estimates.observe_switch(lease.direction, in_seconds=lease.in_seconds)
        state.board.set(lease.devices, Activity.IDLE, "", lease.lease_id)
        lease.move(LeaseState.ACTIVE)
        return True

    async def _send_home(self, worker: Worker, lost: WorkerError | None) -> None:
        """Switch an auxiliary out; if it is lost, or that fails, replace it."""
        if lost is None:
            try:
                await self.state.cluster.switch_out(worker)
            except WorkerError as error:
                lost = error
        if lost is not None:
            await self.state.restart(worker, lost)

    async def _switch_out(self, lease: Lease, lost: Mapping[Worker, WorkerError]) -> None:
        state, began = self.state, self.state.now_seconds()
        lease.move(LeaseState.SWITCHING_OUT)
        state.board.set(lease.devices, Activity.SWITCH, f"out {lease.direction}", lease.lease_id)
        await asyncio.gather(*(self._send_home(worker, lost.get(worker)) for worker in lease.workers))
        lease.out_seconds = state.now_seconds() - began
        state.estimates.observe_switch(lease.direction, out_seconds=lease.out_seconds)
        self._finish(lease, LeaseState.CLOSED)

    def _finish(self, lease: Lease, target: LeaseState) -> None:
        lease.move(target)
        lease.closed_seconds = self.state.now_seconds()
        self.state.board.set(lease.devices, Activity.IDLE, "", lease.lease_id)
        self.state.board.give_back(lease.devices, lease.lease_id)
        del self.open[lease.lease_id]
        self._ending.discard(lease.lease_id)
        self.closed.append(lease)
        if lease.direction is Direction.ROLLOUTER_ON_TRAINPOOL:
            self.feeder.release_reservations()
        self.state.recorder.lease(lease.row())
        self.state.notify("lease_closed")

    # -- rollouter on TrainPool --------------------------------------------------------------------------------------

    async def _rollout_lease(self, lease: Lease, interrupted: tuple[Rollouter, ...]) -> None:
        if not await self._switch_in(lease):
            return
        rollouters = [Rollouter(self.state, w, lease.version, lease.lease_id) for w in lease.workers]
        self.feeder.auxiliaries = {r.worker: r for r in rollouters}
        await self._pull_over(interrupted)
        self.state.notify("lease_active")
        while not self._over(lease, rollouters):
            await self._rebalance(rollouters)
            # The end may have been announced while rebalancing took its time; nothing would announce it again.
            if not self._over(lease, rollouters):
                await self.state.wait_change()
        lease.move(LeaseState.DRAINING)
        lease.num_partials = sum(len(r.running) for r in rollouters)
        self.feeder.release_reservations()
        await asyncio.gather(*(r.drain(interrupt=True) for r in rollouters))
        self.feeder.auxiliaries = {}
        for rollouter in rollouters:
            lease.work_seconds += rollouter.work_seconds
            lease.num_units += rollouter.num_finished
            rollouter.close_window()
        lease.saved_seconds = lease.work_seconds / max(1, len(self.feeder.primaries))
        await self._switch_out(lease, {r.worker: r.lost for r in rollouters if r.lost is not None})

    def _over(self, lease: Lease, rollouters: Sequence[Rollouter]) -> bool:
        """Whether a rollout lease has to end: it was told to, or lost a worker."""
        return lease.lease_id in self._ending or any(r.lost for r in rollouters)

    def _split(self, auxiliary_replicas: int, first: bool) -> tuple[Rollouter, ...]:
        """Reserve groups for the auxiliaries; returns the primaries that run some of them."""
        missing = self.feeder.missing()
        view = GroupSplitView(
            missing,
            len(self.feeder.primaries),
            auxiliary_replicas,
            self.feeder.num_auxiliary_groups,
            first,
            self.state.estimates.rollout_model,
        )
        try:
            chosen = tuple(self.splitter.split_groups(view))
        except Exception as error:
            raise PolicyError(f"splitter {self.splitter!r} failed in split_groups: {error} ({view})") from error
        self._check_split(chosen, missing)
        return self.feeder.reserve(chosen, self.feeder.lending_version())

    def _check_split(self, chosen: tuple[int, ...], missing: tuple[MissingGroup, ...]) -> None:
        unknown = set(chosen) - {group.group_id for group in missing}
        if unknown or len(set(chosen)) != len(chosen):
            named = sorted(unknown) or chosen
            raise PolicyError(f"splitter {self.splitter!r}: split_groups named {named}, not missing")

    async def _pull_over(self, primaries: tuple[Rollouter, ...]) -> None:
        """Interrupt reserved groups where primaries run them; they resume on the auxiliaries."""
        for rollouter in primaries:
            moving = self.feeder.reserved_on(rollouter)
            if moving:
                await rollouter.interrupt(moving)

    async def _rebalance(self, rollouters: list[Rollouter]) -> None:
        """Ask the splitter again when an auxiliary has run dry."""
        if any(r.idle for r in rollouters) and not self.feeder.num_reserved and self.trainer.waiting:
            await self._pull_over(self._split(len(rollouters), first=False))
            self.feeder.on_event("rebalanced")

    # -- trainer on RollPool -----------------------------------------------------------------------------------------

    async def _train_lease(self, lease: Lease) -> None:
        if not await self._switch_in(lease):
            return
        side = Side(self.state, self.splitter, lease.workers, lease.lease_id)
        queue, version = self.trainer.queue, self.state.version
        if queue is not None and version == lease.version and not queue.done:
            self.trainer.sides[lease.lease_id] = side
            if lease.lease_id in self._ending:
                side.released = True
            overhead = self.state.estimates.switch_cost(lease.direction).grad_seconds
            await side.consume(queue, lambda: self._others(side), overhead)
            lease.move(LeaseState.DRAINING)
            while side.contributed and not side.merged:
                await self.state.wait_change()
            del self.trainer.sides[lease.lease_id]
            if side.lost is not None:
                self.state.notify("worker_lost")
            if side.contributed:
                lease.grad_seconds = self.trainer.log.merge_seconds
                self.state.estimates.observe_switch(lease.direction, grad_seconds=lease.grad_seconds)
        else:
            lease.move(LeaseState.DRAINING)
        lease.work_seconds, lease.num_units = side.work_seconds, side.num_chunks
        lease.saved_seconds = side.work_seconds / len(self.state.cluster.topology.primary_trainers)
        await self._switch_out(lease, {} if side.lost is None else dict.fromkeys(side.workers, side.lost))

    def _others(self, side: Side) -> list[Side]:
        return [self.trainer.primary, *(other for other in self.trainer.sides.values() if other is not side)]
