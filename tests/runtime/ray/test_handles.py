"""Calls to actors that are cancelled, time out, or answer at the very moment."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("ray")

from bidirl.core.errors import LearnerLost, WorkerError
from bidirl.core.topology import Worker, build_topology
from bidirl.runtime.ray.handles import WorkerHandle

TOPOLOGY = build_topology(1, 1)


class Reference:
    """What Ray returns for a call, answered by the test."""

    def __init__(self) -> None:
        self.answer: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.answer


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_that_meets_the_answer_is_not_lost(turns: int) -> None:
    """Else Ctrl-C would be forgotten and the run would go on. ``turns`` of the event loop lie between the two."""

    async def meet() -> bool:
        reference = Reference()
        handle = WorkerHandle(TOPOLOGY.primary_rollouters[0], None, 10.0)
        went_on = False

        async def caller() -> None:
            nonlocal went_on
            await handle.wait(reference, "verb")
            went_on = True
            await asyncio.sleep(0)

        task = asyncio.create_task(caller())
        await asyncio.sleep(0)
        reference.answer.set_result(None)
        for _ in range(turns):
            await asyncio.sleep(0)
        was_done = task.done() or went_on
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return was_done or not went_on

    assert asyncio.run(meet())


@pytest.mark.parametrize(
    ("worker", "error"),
    [(TOPOLOGY.primary_rollouters[0], WorkerError), (TOPOLOGY.primary_trainers[0], LearnerLost)],
)
def test_a_call_that_takes_too_long_names_the_worker_and_the_verb(worker: Worker, error: type[Exception]) -> None:
    handle = WorkerHandle(worker, None, 0.01)
    with pytest.raises(error, match=rf"{worker.name} did not finish verb within 0\.01 s"):
        asyncio.run(handle.wait(Reference(), "verb"))
