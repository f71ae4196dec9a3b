"""One rollout replica as the coordinator drives it: what it serves, what runs on it, how it is drained."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bidirl.core.devices import Activity, work_activity
from bidirl.core.errors import WorkerError
from bidirl.core.groups import Group
from bidirl.core.state import RunState
from bidirl.core.topology import Worker
from bidirl.core.work import RolloutUsage

MIN_WINDOW_STEPS = 16
"""Decode steps that a measured window must have: shorter ones are joined, since their timing is mostly noise."""


class Rollouter:
    """An active rollouter, primary or auxiliary.

    ``served`` is the version it confirmed (invariant 8); ``lost`` is why it must be restarted, ``None`` while it works.
    """

    def __init__(self, state: RunState, worker: Worker, served: int, lease_id: int | None) -> None:
        self.state = state
        self.worker = worker
        self.served = served
        self.lease_id = lease_id
        self.accepting = True
        self.running: dict[int, Group] = {}
        self.updating = False
        self.lost: WorkerError | None = None
        self.num_finished = 0
        self.work_seconds = 0.0
        self._emptied = asyncio.Event()
        self._window_usage = RolloutUsage()
        self._window_seconds = 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing runs here, no weights are being loaded, and the worker is alive."""
        return not self.running and not self.updating and self.lost is None

    def show(self) -> None:
        """Put the replica's activity on the device board."""
        activity = work_activity(self.worker) if self.running else Activity.IDLE
        self.state.board.set(self.worker.devices, activity, f"v{self.served}" if self.running else "", self.lease_id)

    async def generate(self, group: Group) -> Group:
        """Run one group here until it is finished or interrupted. The caller has put it into ``running``.

        If the worker is lost meanwhile, the group comes back as it was.
        """
        try:
            report = await self.state.cluster.generate(self.worker, group)
        except WorkerError as error:
            self.lose(error)
        else:
            self._account(report.usage, report.busy_seconds)
            self.state.observe_verb("generate_overhead", report.overhead_seconds)
            group = report.group
        del self.running[group.group_id]
        if not self.running:
            self._emptied.set()
            self.show()
        return group

    def lose(self, error: WorkerError) -> None:
        """The worker is lost: it gets nothing more until it was restarted."""
        self.lost = self.lost or error
        self.accepting = False

    async def interrupt(self, group_ids: Sequence[int]) -> None:
        """Make running groups come back early."""
        try:
            await self.state.cluster.interrupt(self.worker, group_ids)
        except WorkerError as error:
            self.lose(error)
            self.state.notify("worker_lost")

    def _account(self, usage: RolloutUsage, busy_seconds: float) -> None:
        """Add the difference to the worker's last report to the current window; close the window when it is long."""
        before, busy_before = self.state.rollout_counters.get(self.worker, (RolloutUsage(), 0.0))
        self.state.rollout_counters[self.worker] = (usage, busy_seconds)
        self._window_usage += usage - before
        self._window_seconds += busy_seconds - busy_before
        self.work_seconds += busy_seconds - busy_before
        if self._window_usage.decode_steps >= MIN_WINDOW_STEPS:
            self.close_window()

    def close_window(self) -> None:
        """Let the profiler learn from the window."""
        if self._window_usage.decode_tokens > 0 and self._window_seconds > 0:
            self.state.estimates.observe_rollout(self._window_usage, self._window_seconds)
        self._window_usage, self._window_seconds = RolloutUsage(), 0.0

    async def drain(self, interrupt: bool) -> None:
        """Stop accepting, and wait until nothing runs (unfinished groups go back to the feeder)."""
        self.accepting = False
        if (interrupt or self.lost) and self.running:
            await self.interrupt(tuple(self.running))
        while self.running:
            self._emptied.clear()
            await self._emptied.wait()
