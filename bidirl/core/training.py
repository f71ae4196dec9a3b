"""Training: wait for a batch, consume its chunks, apply one optimizer step, publish the version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from bidirl.core.chunks import ChunkQueue, plan_chunks
from bidirl.core.devices import Activity
from bidirl.core.errors import BidirlError, GradientsLost
from bidirl.core.feeding import Feeder
from bidirl.core.groups import Group
from bidirl.core.interfaces import Splitter
from bidirl.core.sides import Side, trainer_work
from bidirl.core.state import RunState
from bidirl.core.steps import StepLog
from bidirl.core.work import TrainerWork

T = TypeVar("T")


class TrainLoop:
    """The primary trainers' life. ``waiting``: they have no batch. ``queue``: the batch being consumed."""

    def __init__(
        self,
        state: RunState,
        splitter: Splitter,
        feeder: Feeder,
        log: StepLog,
        checkpoint: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.state = state
        self.splitter = splitter
        self.feeder = feeder
        self.log = log
        self.waiting = False
        self.queue: ChunkQueue | None = None
        self.last_work = TrainerWork(())
        self.checkpoint = checkpoint
        self.reclaim: Callable[[], Awaitable[None]] | None = None
        self.primary = Side(state, splitter, state.cluster.topology.primary_trainers, None)
        self.sides: dict[int, Side] = {}

    async def run(self) -> None:
        """All steps of the job."""
        state, degenerate = self.state, 0
        while state.version < state.settings.num_steps:
            waited = state.now_seconds()
            batch = await self._take_batch()
            began = state.now_seconds()
            trained = await self._train(batch, began - waited)
            degenerate = 0 if trained else degenerate + 1
            if degenerate >= state.settings.max_degenerate_batches:
                raise BidirlError(
                    f"{degenerate} batches in a row had no trainable token (every group has equal rewards): "
                    "use an easier or harder task, a larger group_size, or raise max_degenerate_batches"
                )

    async def _take_batch(self) -> tuple[Group, ...]:
        state = self.state
        self.waiting = True
        state.notify("trainer_waits")
        while (batch := state.buffer.take_batch(state.version)) is None:
            await state.wait_change()
        self.waiting = False
        if self.reclaim is not None:
            await self.reclaim()
        return batch

    async def _busy(self, detail: str, work: Awaitable[T], activity: Activity = Activity.TRAIN) -> T:
        self.state.board.set(self.primary.devices, activity, detail)
        began = self.state.now_seconds()
        result = await work
        self.state.observe_verb(detail, self.state.now_seconds() - began)
        self.state.board.set(self.primary.devices, Activity.IDLE)
        return result

    async def _train(self, batch: tuple[Group, ...], wait_seconds: float) -> bool:
        """Consume one batch; whether it led to an optimizer step."""
        state, cluster = self.state, self.state.cluster
        version, began = state.version, state.now_seconds()
        if not batch:
            self.feeder.batch_resolved()
            state.notify("batch_dropped")
            return False
        info = await self._busy("begin_batch", cluster.begin_batch(version, version, batch))
        if info.num_trainable_tokens == 0:
            for group in batch:
                state.ledger.drop(group, "no_trainable_token", state.now_seconds())
            self.feeder.batch_resolved()
            state.notify("batch_dropped")
            return False
        topology, settings = cluster.topology, state.settings
        replicas = len(topology.primary_trainers) + len(topology.auxiliary_trainers)
        chunks = plan_chunks(batch, settings.sub_stages, settings.max_tokens_per_chunk, replicas)
        self.queue = ChunkQueue(chunks)
        self.last_work = trainer_work(chunks)
        state.notify("training_started")
        merged = False
        while not merged:
            await self.primary.consume(self.queue, lambda: list(self.sides.values()), 0.0)
            merged = await self._merge(self.queue)
        results = self.queue.merged()
        self.queue = None
        metrics = await self._busy("optimizer_step", cluster.optimizer_step(version))
        for group in batch:
            state.ledger.consume(group, version, version, state.now_seconds())
        state.version += 1
        if state.settings.record_digests:
            digest = await self._busy("parameter_digest", cluster.parameter_digest())
            state.ledger.stepped(state.version, digest, state.now_seconds())
        self.feeder.batch_resolved()
        consumed = state.now_seconds()
        if state.version < state.settings.num_steps:
            await self._busy("export_weights", cluster.export_weights(state.version, self.feeder.oldest_needed()))
            state.exported = state.version
        times = {"wait": wait_seconds, "consume": consumed - began, "publish": state.now_seconds() - consumed}
        self.log.step(batch, version, times, {**info.metrics, **metrics}, results)
        if self.checkpoint is not None:
            await self._busy("checkpoint", self.checkpoint())
        state.notify("weights_exported")
        return True

    async def _merge(self, queue: ChunkQueue) -> bool:
        """Bring the auxiliaries' gradients into the primaries, in lease order (C_grad); whether that worked.

        If an auxiliary was lost first, all chunks behind these gradients are queued again.
        """
        sides = [side for side in self.sides.values() if side.contributed and not side.merged]
        if sides:
            workers = tuple(worker for side in sides for worker in side.workers)
            began = self.state.now_seconds()
            try:
                await self._busy("merge_gradients", self.state.cluster.merge_gradients(workers), Activity.SWITCH)
            except GradientsLost as error:
                self.state.board.set(self.primary.devices, Activity.IDLE)
                for side in sides:
                    side.lose_gradients(queue)
                    if any(worker.name in error.workers for worker in side.workers):
                        side.lost = error
                self.state.notify("gradients_lost")
                return False
            self.log.merge_seconds = self.state.now_seconds() - began
        for side in self.sides.values():
            side.merged = True
        self.state.notify("gradients_merged")
        return True
