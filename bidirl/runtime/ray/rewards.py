"""Rewards of finished samples. The task's code is the user's: it may raise, be slow, or never return."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from bidirl.core.groups import Group, Prompt, Sample

T = TypeVar("T")


class PromptSource(Protocol):
    """What the cluster needs of a task."""

    def prompt(self, group_id: int) -> Prompt:
        """The prompt at a position of the data stream, with token ids."""
        ...

    def reward(self, prompt: Prompt, token_ids: Any) -> float:
        """Score one response; ``token_ids`` holds its tokens, shape ``(num_tokens,)``, int32."""
        ...


async def score(task: PromptSource, group: Group, limit_seconds: float) -> Group:
    """The group with the rewards of its finished samples, or with ``error`` set to why there are none.

    Args:
        task: its ``reward`` is called in a thread of this group alone.
        group: samples that have a reward keep it.
        limit_seconds: after it the group is given up, and the thread left to itself.
    """
    try:
        async with asyncio.timeout(limit_seconds):
            return await _in_daemon_thread(lambda: _scored(task, group))
    except TimeoutError:
        return replace(group, error=f"the reward function did not return within {limit_seconds:g} s")


def _scored(task: PromptSource, group: Group) -> Group:
    samples: list[Sample] = []
    for index, sample in enumerate(group.samples):
        if sample.finished and sample.reward is None:
            try:
                sample = replace(sample, reward=float(task.reward(group.prompt, sample.token_ids)))
            except Exception as error:
                return replace(group, error=f"the reward of sample {index} raised {type(error).__name__}: {error}")
        samples.append(sample)
    return replace(group, samples=tuple(samples))


async def _in_daemon_thread(function: Callable[[], T]) -> T:
    """Like ``asyncio.to_thread``, for a function that must not raise, but nothing waits for its thread at the end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T) -> None:
        if not future.done():
            future.set_result(result)

    def run() -> None:
        result = function()
        with suppress(RuntimeError):  # the loop is closed: the run has ended without this answer
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="bidirl reward", daemon=True).start()
    return await future
