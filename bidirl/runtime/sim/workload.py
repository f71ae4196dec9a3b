"""Workloads: prompt lengths, response lengths and rewards per sample, pure functions of the seed and the ids.

Every group has its own child streams, keyed by its id: group 10,000 costs the same as group 0, and nothing that a
policy does can shift another group's draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import exp, log
from typing import TypeVar

import numpy as np

from bidirl.core.errors import ConfigError

T = TypeVar("T")
_PROMPTS, _RESPONSES, _REWARDS = range(3)
_CACHED_GROUPS = 8192


def group_stream(seed: int, stream: int, group_id: int) -> np.random.Generator:
    """The generator of one group for one purpose."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(stream, group_id))))


class Workload(ABC):
    """Lengths and rewards. Samples of a group are counted from 0; lengths are tokens, at least 1.

    Rewards are Bernoulli: 1 with ``success_probability``, which drifts by ``success_drift`` per batch and is kept in
    [0, 1].

    Args:
        group_size: G.
        max_response_tokens: the cap; a response that reaches it ends with reason "length".
        groups_per_batch: groups between two steps of a drift.
        success_probability: of a reward of 1, in the first batch.
        success_drift: added to it per batch.
        seed: of all streams.
    """

    def __init__(
        self,
        *,
        group_size: int,
        max_response_tokens: int,
        groups_per_batch: int = 1,
        success_probability: float = 0.5,
        success_drift: float = 0.0,
        seed: int = 0,
    ) -> None:
        for key, value in (
            ("group_size", group_size),
            ("max_response_tokens", max_response_tokens),
            ("groups_per_batch", groups_per_batch),
        ):
            if value < 1:
                raise ConfigError(f"{key} is {value}: it must be at least 1")
        if not 0.0 <= success_probability <= 1.0:
            raise ConfigError(f"success_probability is {success_probability}: it must be between 0 and 1")
        if seed < 0:
            raise ConfigError(f"seed is {seed}: it cannot be negative")
        self.group_size = group_size
        self.max_response_tokens = max_response_tokens
        self.groups_per_batch = groups_per_batch
        self.success_probability = success_probability
        self.success_drift = success_drift
        self.seed = seed
        self._responses: dict[int, tuple[int, ...]] = {}
        self._rewards: dict[int, tuple[float, ...]] = {}

    @abstractmethod
    def prompt_tokens(self, group_id: int) -> int:
        """Length of a prompt."""

    @abstractmethod
    def _draw_responses(self, group_id: int) -> Sequence[int]:
        """Lengths of all responses of a group, not capped."""

    def batch_of(self, group_id: int) -> int:
        """The step of the drift that a group belongs to."""
        return group_id // self.groups_per_batch

    def response_tokens(self, group_id: int) -> tuple[int, ...]:
        """Lengths of the G responses of a group, between 1 and the cap."""
        lengths = self._responses.get(group_id)
        if lengths is None:
            cap = self.max_response_tokens
            lengths = tuple(min(cap, max(1, int(length))) for length in self._draw_responses(group_id))
            assert len(lengths) == self.group_size
            _remember(self._responses, group_id, lengths)
        return lengths

    def rewards(self, group_id: int) -> tuple[float, ...]:
        """Rewards of the G responses of a group."""
        rewards = self._rewards.get(group_id)
        if rewards is None:
            chance = min(1.0, max(0.0, self.success_probability + self.success_drift * self.batch_of(group_id)))
            draws = group_stream(self.seed, _REWARDS, group_id).random(self.group_size).tolist()
            rewards = tuple(1.0 if draw < chance else 0.0 for draw in draws)
            _remember(self._rewards, group_id, rewards)
        return rewards


def _remember(cache: dict[int, T], group_id: int, value: T) -> None:
    """Keep what was drawn, but not for ever: it can be drawn again."""
    if len(cache) >= _CACHED_GROUPS:
        cache.clear()
    cache[group_id] = value


class LognormalWorkload(Workload):
    """Truncated lognormal lengths: exp(N(ln median, σ²)), cut off at the caps.

    Args:
        median_response_tokens: median of the first batch, before the cap.
        sigma: σ of the response lengths.
        drift_per_batch: the median is multiplied by 1 + drift at every batch.
        median_prompt_tokens: median prompt length.
        prompt_sigma: σ of the prompt lengths; 0 makes them all equal.
        max_prompt_tokens: cap of the prompt length.
        group_correlation: share of σ² that the samples of one group have in common, 0 to 1 (difficult prompts have
            long responses throughout).
    """

    def __init__(
        self,
        *,
        group_size: int,
        max_response_tokens: int,
        median_response_tokens: float,
        sigma: float = 0.75,
        drift_per_batch: float = 0.0,
        median_prompt_tokens: float = 256.0,
        prompt_sigma: float = 0.0,
        max_prompt_tokens: int = 1024,
        group_correlation: float = 0.0,
        groups_per_batch: int = 1,
        success_probability: float = 0.5,
        success_drift: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(
            group_size=group_size,
            max_response_tokens=max_response_tokens,
            groups_per_batch=groups_per_batch,
            success_probability=success_probability,
            success_drift=success_drift,
            seed=seed,
        )
        if median_response_tokens < 1 or median_prompt_tokens < 1:
            raise ConfigError("median_response_tokens and median_prompt_tokens must be at least 1")
        if sigma < 0 or prompt_sigma < 0:
            raise ConfigError("sigma and prompt_sigma cannot be negative")
        if not drift_per_batch > -1.0:
            raise ConfigError(f"drift_per_batch is {drift_per_batch}: it must be above -1")
        if not 0.0 <= group_correlation <= 1.0:
            raise ConfigError(f"group_correlation is {group_correlation}: it must be between 0 and 1")
        self.median_response_tokens = median_response_tokens
        self.sigma = sigma
        self.drift_per_batch = drift_per_batch
        self.median_prompt_tokens = median_prompt_tokens
        self.prompt_sigma = prompt_sigma
        self.max_prompt_tokens = max_prompt_tokens
        self.group_correlation = group_correlation

    def prompt_tokens(self, group_id: int) -> int:
        """Length of a prompt."""
        length = self.median_prompt_tokens
        if self.prompt_sigma:
            length *= exp(self.prompt_sigma * group_stream(self.seed, _PROMPTS, group_id).standard_normal())
        return min(self.max_prompt_tokens, max(1, round(length)))

    def _draw_responses(self, group_id: int) -> Sequence[int]:
        normals = group_stream(self.seed, _RESPONSES, group_id).standard_normal(self.group_size + 1).tolist()
        common = self.sigma * self.group_correlation**0.5 * normals[0]
        own = self.sigma * (1.0 - self.group_correlation) ** 0.5
        centre = log(self.median_response_tokens) + common
        centre += self.batch_of(group_id) * log(1.0 + self.drift_per_batch)
        return [round(exp(min(centre + own * normal, 40.0))) for normal in normals[1:]]


class ConstantWorkload(Workload):
    """Every prompt and every response has one length; for tests and for what follows by arithmetic."""

    def __init__(
        self,
        *,
        group_size: int,
        response_tokens: int,
        prompt_tokens: int = 256,
        success_probability: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__(
            group_size=group_size,
            max_response_tokens=response_tokens,
            success_probability=success_probability,
            seed=seed,
        )
        self._prompt = prompt_tokens

    def prompt_tokens(self, group_id: int) -> int:
        """Length of a prompt."""
        return self._prompt

    def _draw_responses(self, group_id: int) -> Sequence[int]:
        return [self.max_response_tokens] * self.group_size
