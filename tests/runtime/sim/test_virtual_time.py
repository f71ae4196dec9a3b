"""The virtual clock against a bare-heap oracle, its refusals, and the private asyncio names that it stands on."""

from __future__ import annotations

import asyncio
import threading
from asyncio import base_events, events
from collections import deque
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidirl.core.errors import StallError
from bidirl.runtime.sim.virtual_time import PRIVATE_NAMES, VirtualTimeLoop, run_virtual

DELAYS = st.sampled_from([0.0, 0.1, 0.1 + 1e-12, 0.25, 1.0, 1e6]) | st.floats(0.0, 10.0)
PLANS = st.lists(st.lists(DELAYS, min_size=1, max_size=6), min_size=1, max_size=8)


def heap_replay(plans: list[list[float]]) -> list[tuple[float, int]]:
    """The same sleepers on nothing but a heap of (deadline, order of creation)."""
    heap: list[tuple[float, int, int, int]] = []
    number, log = 0, []
    for sleeper, delays in enumerate(plans):
        heappush(heap, (delays[0], number, sleeper, 0))
        number += 1
    while heap:
        now = heap[0][0]
        due = []
        while heap and heap[0][0] <= now:
            due.append(heappop(heap))
        for when, _, sleeper, index in due:
            log.append((when, sleeper))
            if index + 1 < len(plans[sleeper]):
                heappush(heap, (when + plans[sleeper][index + 1], number, sleeper, index + 1))
                number += 1
    return log


@given(PLANS)
def test_order_and_times_equal_a_bare_heap(plans: list[list[float]]) -> None:
    log: list[tuple[float, int]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        left = sum(map(len, plans))

        def fire(sleeper: int, index: int) -> None:
            nonlocal left
            log.append((loop.time(), sleeper))
            left -= 1
            if index + 1 < len(plans[sleeper]):
                loop.call_later(plans[sleeper][index + 1], fire, sleeper, index + 1)
            if not left:
                done.set_result(None)

        for sleeper, delays in enumerate(plans):
            loop.call_later(delays[0], fire, sleeper, 0)
        await done

    run_virtual(main())
    assert log == heap_replay(plans)


def test_equal_deadlines_are_first_in_first_out() -> None:
    order: list[int] = []

    async def sleeper(number: int) -> None:
        await asyncio.sleep(1.0)
        order.append(number)

    async def main() -> None:
        await asyncio.gather(*(sleeper(number) for number in range(100)))

    run_virtual(main())
    assert order == list(range(100))


def test_the_clock_reads_the_exact_deadline() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = []
        for delay in (0.1, 1e-15, 0.2, 3600.0, 1e-9):
            expected = loop.time() + delay
            await asyncio.sleep(delay)
            assert loop.time() == expected
            times.append(loop.time())
        return times

    assert run_virtual(main())[-1] > 3600.3


def test_deadlock_names_the_waiting_tasks() -> None:
    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(never(), name="weight update of rollouter 3")
        await task

    with pytest.raises(StallError, match=r"main .*main.*weight update of rollouter 3 .*never"):
        run_virtual(main())


def test_a_timer_at_infinity_does_not_hide_a_deadlock() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_at(float("inf"), print)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StallError):
        run_virtual(main())


def test_cancelled_timers_neither_move_the_clock_nor_pile_up() -> None:
    async def main() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        for _ in range(10_000):
            loop.call_later(1000.0, print).cancel()
        await asyncio.sleep(1.0)
        return loop.time(), len(loop._timers)

    now, left = run_virtual(main())
    assert now == 1.0
    assert left <= 1100


def test_timeouts_work_in_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(100.0), 7.0)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 7.0


def test_threads_are_refused() -> None:
    async def main() -> list[BaseException]:
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.to_thread(print)
        loop, errors = asyncio.get_running_loop(), []

        def other() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return errors

    assert len(run_virtual(main())) == 1


def test_a_nan_deadline_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="NaN"):
            asyncio.get_running_loop().call_later(float("nan"), print)

    run_virtual(main())


def test_errors_reach_the_caller_and_tasks_left_behind_are_cancelled() -> None:
    cancelled: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            cancelled.append("background")

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(background())
        await asyncio.sleep(0.5)
        assert not task.done()
        raise KeyError("from main")

    with pytest.raises(KeyError, match="from main"):
        run_virtual(main())
    assert cancelled == ["background"]


def test_the_private_names_exist() -> None:
    assert callable(base_events.BaseEventLoop._run_once)
    assert callable(events.Handle._run)
    loop = VirtualTimeLoop()
    try:
        assert isinstance(loop._ready, deque)
        assert len(PRIVATE_NAMES) == 3
    finally:
        loop.close()
