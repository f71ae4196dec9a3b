"""A side of the trainer stage: the primary trainers, or the auxiliary trainers of one lease, pulling chunks lazily."""

from __future__ import annotations

from collections.abc import Callable

from bidirl.core.chunks import Chunk, ChunkQueue, SubStage
from bidirl.core.devices import Activity, work_activity
from bidirl.core.errors import PolicyError, WorkerError
from bidirl.core.interfaces import Splitter
from bidirl.core.opportunity import PullView
from bidirl.core.state import RunState
from bidirl.core.topology import Worker
from bidirl.core.work import TrainerWork


def trainer_work(chunks: tuple[Chunk, ...]) -> TrainerWork:
    """Chunks as stage-ordered work for M_t."""
    return TrainerWork(tuple((chunk.sub_stage, chunk.num_tokens) for chunk in chunks))


class Side:
    """Trainer workers that pull from one queue together, ``replicas`` chunks in parallel.

    Attributes:
        merged: set by the trainer once they are (or once there is nothing to merge).
        lost: why the side's workers must be restarted; ``None`` while they work.
        released: set when the lease shall end although chunks are left.
    """

    def __init__(self, state: RunState, splitter: Splitter, workers: tuple[Worker, ...], lease_id: int | None) -> None:
        self.state = state
        self.splitter = splitter
        self.workers = workers
        self.lease_id = lease_id
        self.primary = lease_id is None
        self.merged = self.released = False
        self.lost: WorkerError | None = None
        self.work_seconds = 0.0
        self._actor_chunks: list[int] = []
        self.num_chunks = 0
        self._busy_until = 0.0

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices of the side."""
        return tuple(device for worker in self.workers for device in worker.devices)

    @property
    def contributed(self) -> bool:
        """Whether gradients lie here that came from the actor update."""
        return bool(self._actor_chunks)

    @property
    def busy_seconds(self) -> float:
        """Predicted seconds until the side is free."""
        return max(0.0, self._busy_until - self.state.now_seconds())

    async def consume(self, queue: ChunkQueue, others: Callable[[], list[Side]], overhead_seconds: float) -> None:
        """Pull and run chunks until none is left for this side.

        The primary side stays until every chunk has finished; an auxiliary side leaves as soon as it declines.
        """
        while not queue.done and self.lost is None:
            limit = 0 if self.released else self._ask(queue, others(), overhead_seconds)
            chunks = queue.pull(limit) if limit else ()
            if chunks:
                await self._run(queue, chunks)
                self.state.notify("chunk_finished")
            elif not self.primary and (limit == 0 or not queue.num_queued):
                return
            else:
                await self.state.wait_change()

    def lose_gradients(self, queue: ChunkQueue) -> None:
        """What this side accumulated is gone: the chunks behind it run again, wherever."""
        for chunk_id in self._actor_chunks:
            queue.lose(chunk_id)
        self._actor_chunks.clear()

    def _ask(self, queue: ChunkQueue, others: list[Side], overhead_seconds: float) -> int:
        queued = queue.queued_sizes
        if not queued:
            return 0
        view = PullView(
            TrainerWork(queued),
            self.primary,
            len(self.workers),
            sum(len(side.workers) for side in others),
            overhead_seconds,
            min((side.busy_seconds for side in others), default=0.0),
            self.state.estimates.trainer_model,
        )
        try:
            limit = self.splitter.pull_chunks(view)
        except Exception as error:
            raise PolicyError(f"splitter {self.splitter!r} failed in pull_chunks: {error} ({view})") from error
        if not isinstance(limit, int) or not 0 <= limit <= len(queued):
            raise PolicyError(f"splitter {self.splitter!r}: pull_chunks returned {limit!r}, not 0 … {len(queued)}")
        return limit if limit or others or not self.primary else 1

    async def _run(self, queue: ChunkQueue, chunks: tuple[Chunk, ...]) -> None:
        state = self.state
        model = state.estimates.trainer_model
        if model.ready:
            self._busy_until = state.now_seconds() + model.predict(trainer_work(chunks), len(self.workers))
        activity = work_activity(self.workers[0])
        state.board.set(self.devices, activity, str(chunks[0].sub_stage), self.lease_id)
        inputs = [queue.inputs(chunk) for chunk in chunks]
        began = state.now_seconds()
        try:
            report = await state.cluster.train_chunks(self.workers, chunks, inputs)
        except WorkerError as error:
            for chunk in chunks:
                queue.requeue(chunk.chunk_id)
            self.lose_gradients(queue)
            self.lost = error
            state.board.set(self.devices, Activity.IDLE, "", self.lease_id)
            return
        overhead = state.now_seconds() - began - sum(report.seconds) / len(self.workers)
        state.observe_verb("train_chunks_overhead", max(0.0, overhead))
        for chunk, result, seconds in zip(chunks, report.results, report.seconds, strict=True):
            queue.finish(result)
            state.estimates.observe_chunks([(chunk.sub_stage, chunk.num_tokens)], seconds)
            self.work_seconds += seconds
            if chunk.sub_stage is SubStage.ACTOR_UPDATE:
                self._actor_chunks.append(chunk.chunk_id)
        self.num_chunks += len(chunks)
        self._busy_until = 0.0
        state.board.set(self.devices, Activity.IDLE, "", self.lease_id)
