"""What the three concerns of the coordinator share: feeding, training and scheduling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bidirl.core.buffer import RolloutBuffer
from bidirl.core.cluster import Cluster
from bidirl.core.devices import DeviceBoard
from bidirl.core.errors import WorkerError
from bidirl.core.estimates import Estimates
from bidirl.core.job import JobSettings
from bidirl.core.ledger import Ledger
from bidirl.core.records import Recorder
from bidirl.core.staleness import StalenessBound
from bidirl.core.topology import Worker
from bidirl.core.work import RolloutUsage


class RunState:
    """Versions, buffer, ledger, devices, and the one way to say that something happened.

    ``version`` counts optimizer steps applied; ``exported`` is the newest version that receivers can load.
    """

    def __init__(self, cluster: Cluster, settings: JobSettings, estimates: Estimates, recorder: Recorder) -> None:
        self.cluster = cluster
        self.settings = settings
        self.estimates = estimates
        self.recorder = recorder
        self.version = 0
        self.exported = 0
        self.stopping = False
        self.num_events = 0
        self.num_restarts: dict[Worker, int] = {}
        self.rollout_counters: dict[Worker, tuple[RolloutUsage, float]] = {}
        self.bound = StalenessBound(settings.staleness, settings.groups_per_batch)
        self.buffer = RolloutBuffer(self.bound, settings.consumption == "pinned")
        self.ledger = Ledger(recorder.ledger)
        self.start_seconds = cluster.now_seconds()
        devices = range(cluster.topology.num_devices)
        self.board = DeviceBoard(devices, self.now_seconds, recorder.activity)
        self.changed = asyncio.Event()
        self._listeners: list[Callable[[str], None]] = []
        self._verbs: dict[str, tuple[int, float]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def now_seconds(self) -> float:
        """Seconds since the run started (engine start-up and switch probes excluded)."""
        return self.cluster.now_seconds() - self.start_seconds

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call ``listener(cause)`` on every event, in the order of registration."""
        self._listeners.append(listener)

    def notify(self, cause: str) -> None:
        """Something changed: wake waiters and let every concern react."""
        self.num_events += 1
        self.changed.set()
        if self.stopping or self.failure.done():
            return
        for listener in self._listeners:
            listener(cause)

    async def wait_change(self) -> None:
        """Wait for the next ``notify``."""
        self.changed.clear()
        await self.changed.wait()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run ``coroutine`` beside the others; its failure ends the run."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self.failure.done():
            self.failure.set_exception(error)

    async def cancel_tasks(self) -> None:
        """Cancel everything that was spawned and wait until it has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def restart(self, worker: Worker, cause: WorkerError) -> None:
        """Replace a lost worker.

        Raises:
            WorkerError: ``cause``, once the worker was lost more often than ``max_worker_restarts`` allows.
        """
        self.rollout_counters.pop(worker, None)
        while True:
            count = self.num_restarts.get(worker, 0)
            if count >= self.settings.max_worker_restarts:
                if not count:
                    raise cause
                raise WorkerError(f"{worker.name} was lost again after {count} restarts: {cause}") from cause
            self.num_restarts[worker] = count + 1
            self.recorder.progress(f"{worker.name} is restarted: {cause}")
            began = self.now_seconds()
            try:
                await self.cluster.restart(worker)
            except WorkerError as error:
                cause = error
                continue
            self.observe_verb("restart", self.now_seconds() - began)
            return

    def observe_verb(self, verb: str, seconds: float) -> None:
        """A verb that is no stage (a step, an export, the overhead of a call, …) took ``seconds``."""
        count, total = self._verbs.get(verb, (0, 0.0))
        self._verbs[verb] = (count + 1, total + seconds)

    def verb_seconds(self) -> dict[str, dict[str, float]]:
        """Mean and count of every observed verb."""
        return {verb: {"mean": total / count, "count": count} for verb, (count, total) in self._verbs.items()}

    def waiting(self) -> str:
        """Names of running tasks, for the watchdog's message."""
        return ", ".join(task.get_name() for task in self._tasks) or "no task"
