"""Virtual time: an asyncio event loop whose clock jumps to the next timer, so that hours take milliseconds.

Differences to a stock loop, each on purpose:

* timers run in the order of (deadline, order of creation); equal deadlines are FIFO;
* a deadline is never rounded: the clock reads exactly the deadline when its timer runs;
* nothing ready and no timer is a deadlock: :class:`~bidirl.core.errors.StallError` names the tasks that wait;
* threads are refused, and no file descriptor is ever polled.

It relies on three private asyncio names (:data:`PRIVATE_NAMES`), which a test pins.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heapify, heappop, heappush
from math import inf, isnan
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from bidirl.core.errors import StallError

T = TypeVar("T")
Args = TypeVarTuple("Args")

PRIVATE_NAMES = ("BaseEventLoop._run_once", "BaseEventLoop._ready", "Handle._run")
_COMPACT_AT = 1024


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Clock in seconds, from 0. Single-threaded; coroutines that do real I/O do not work here."""

    _ready: Any

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._num_timers = 0
        self._compact_at = _COMPACT_AT

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio. A deadline in the past is due now; one at infinity never is."""
        if isnan(when):
            raise ValueError("a timer's deadline is NaN")
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if when < inf:
            self._num_timers += 1
            heappush(self._timers, (when, self._num_timers, timer))
            if len(self._timers) > self._compact_at:
                self._drop_cancelled()
        return timer

    def _drop_cancelled(self) -> None:
        self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
        heapify(self._timers)
        self._compact_at = max(_COMPACT_AT, 2 * len(self._timers))

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not ready:
            if not timers:
                raise StallError(f"deadlock at {self._now:g} virtual seconds: nothing is scheduled; {_waiting(self)}")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def run_in_executor(self, *args: object) -> NoReturn:
        """Refused: a thread's progress is not part of virtual time."""
        raise RuntimeError("virtual time has no threads: run_in_executor and asyncio.to_thread are refused")

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        """As ``call_soon`` on the loop's own thread; refused from any other."""
        owner: int | None = getattr(self, "_thread_id", None)
        if owner is not None and owner != threading.get_ident():
            raise RuntimeError("virtual time has no threads: call_soon_threadsafe from another thread is refused")
        return self.call_soon(callback, *args, context=context)


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    """Names of the unfinished tasks with what each runs, in alphabetical order."""
    lines = []
    for task in asyncio.all_tasks(loop):
        coroutine = task.get_coro()
        lines.append(f"{task.get_name()} ({getattr(coroutine, '__qualname__', repr(coroutine))})")
    return "waiting: " + (", ".join(sorted(lines)) or "no task")


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` on a fresh virtual clock and return its result; tasks left behind are cancelled.

    Raises:
        StallError: on deadlock, naming what waits.
    """
    loop = VirtualTimeLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(loop.create_task(main, name="main"))
    finally:
        try:
            _cancel_rest(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_rest(loop: VirtualTimeLoop) -> None:
    rest = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in rest:
        task.cancel()
    if rest:
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
