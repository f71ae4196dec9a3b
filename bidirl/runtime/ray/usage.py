"""Cumulative counters of one rollout engine, fed by vLLM once per engine step."""

from __future__ import annotations

import time
from typing import Any

from bidirl.core.work import RolloutUsage


class UsageMeter:
    """Counts engine steps. ``record`` is called by vLLM's stat logging, the rest by the rollout engine.

    Context is followed exactly: a request adds its prompt when it is prefilled, one token per step, and takes all of
    it away when it ends or is aborted.
    """

    def __init__(self) -> None:
        self.prefill_tokens = 0
        self.decode_steps = 0
        self.decode_tokens = 0
        self.context_token_steps = 0
        self._context = 0
        self._active = 0
        self._busy_seconds = 0.0
        self._busy_since = 0.0

    def record(self, iteration: Any) -> None:
        """One engine step: ``iteration`` is vLLM's ``IterationStats``."""
        prefilled, decoded = iteration.num_prompt_tokens, iteration.num_generation_tokens
        self.prefill_tokens += prefilled
        self._context += prefilled
        if decoded:
            self.decode_steps += 1
            self.decode_tokens += decoded
            self.context_token_steps += self._context
            self._context += decoded
        for request in iteration.finished_requests:
            self._context -= request.num_prompt_tokens + request.num_generation_tokens

    def aborted(self, prompt_tokens: int, generated_tokens: int) -> None:
        """A request was aborted after it had generated something (before that, nothing was counted for it)."""
        self._context = max(0, self._context - prompt_tokens - generated_tokens)

    def enter(self) -> None:
        """A request begins."""
        if not self._active:
            self._busy_since = time.monotonic()
        self._active += 1

    def leave(self) -> None:
        """A request has ended."""
        self._active -= 1
        if not self._active:
            self._busy_seconds += time.monotonic() - self._busy_since
            self._context = 0

    @property
    def active(self) -> int:
        """Requests in the engine."""
        return self._active

    @property
    def busy_seconds(self) -> float:
        """Seconds in which the engine had at least one request."""
        return self._busy_seconds + (time.monotonic() - self._busy_since if self._active else 0.0)

    @property
    def usage(self) -> RolloutUsage:
        """The counters as the stage models read them."""
        return RolloutUsage(self.prefill_tokens, self.decode_steps, self.decode_tokens, self.context_token_steps)


class UsageLogger:
    """Adapter with the methods that vLLM calls on a stat logger."""

    def __init__(self, meter: UsageMeter) -> None:
        self._meter = meter

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        """Forward the step's figures."""
        if iteration_stats is not None:
            self._meter.record(iteration_stats)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""

    def log(self) -> None:
        """Nothing to say."""

    def record_sleep_state(self, is_awake: int, level: int) -> None:
        """Nothing to count."""
