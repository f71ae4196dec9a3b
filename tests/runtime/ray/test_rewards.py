"""Reward functions that work, raise, or never return."""

from __future__ import annotations

import asyncio
import threading

import numpy as np

from bidirl.core.groups import Group, Prompt, Sample
from bidirl.runtime.ray.rewards import score
from tests.runtime.conftest import ParityTask


def group() -> Group:
    """One finished sample without a reward, one that has its reward, one that is unfinished."""
    finished = Sample().extended(0, 1, np.array([3], np.int32), np.zeros(1, np.float32), "stop")
    return Group(
        Prompt(0, 2, np.array([1, 2], np.int32)), (finished, Sample(finish_reason="stop", reward=7.0), Sample()), 0
    )


class Raises(ParityTask):
    """Cannot score anything."""

    def reward(self, prompt, token_ids):
        raise ValueError("no such answer")


class Hangs(ParityTask):
    """Never answers."""

    def reward(self, prompt, token_ids):
        threading.Event().wait()


def test_only_finished_samples_without_a_reward_are_scored() -> None:
    scored = asyncio.run(score(ParityTask(), group(), 10.0))
    assert scored.error is None
    assert [sample.reward is None for sample in scored.samples] == [False, False, True]
    assert scored.samples[1].reward == 7.0


def test_a_reward_that_raises_is_the_error_of_the_group() -> None:
    assert (
        asyncio.run(score(Raises(), group(), 10.0)).error == "the reward of sample 0 raised ValueError: no such answer"
    )


def test_a_reward_that_hangs_neither_holds_the_run_nor_its_end() -> None:
    """``asyncio.run`` would wait for a thread of its own pool; that it returns is the point."""
    assert "did not return within 0.05 s" in str(asyncio.run(score(Hangs(), group(), 0.05)).error)
