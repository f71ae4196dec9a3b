"""One ``generate`` call inside a simulated replica, and the streams of tokens that it consists of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from bidirl.core.errors import WorkerError
from bidirl.core.groups import Group, Sample, VersionSpan
from bidirl.core.work import RolloutUsage


class Stream:
    """An unfinished sample in the engine: waiting, or running since decode step ``admitted_step``.

    Attributes:
        context_tokens: what a prefill computes: prompt, earlier prefix, and what was generated before a preemption.
        generated: tokens of this call up to the last admission or removal.
        remaining: tokens still to come from there.
        admission: number of the admission; 0 while waiting.
    """

    __slots__ = ("admission", "admitted_step", "call", "context_tokens", "generated", "index", "remaining")

    def __init__(self, call: Call, index: int, context_tokens: int, remaining: int) -> None:
        self.call = call
        self.index = index
        self.context_tokens = context_tokens
        self.remaining = remaining
        self.generated = 0
        self.admission = 0
        self.admitted_step = 0

    def leave(self, step: int) -> int:
        """Stop running at decode step ``step``; returns the context tokens that are set free."""
        done = step - self.admitted_step
        self.generated += done
        self.remaining -= done
        self.context_tokens += done
        self.admission = 0
        return self.context_tokens


class Call:
    """A group in the engine. ``num_open`` streams have neither finished nor been taken out."""

    __slots__ = ("busy_seconds", "done", "group", "interrupted", "num_open", "num_waiting", "streams", "usage")

    def __init__(self, group: Group, targets: Sequence[int], done: asyncio.Future[None]) -> None:
        prompt = group.prompt.num_tokens
        self.group = group
        self.done = done
        self.interrupted = False
        self.streams: list[Stream] = []
        for index, (sample, target) in enumerate(zip(group.samples, targets, strict=True)):
            if not sample.finished:
                held = sample.num_tokens
                self.streams.append(Stream(self, index, prompt + held, max(1, target - held)))
        self.num_open = self.num_waiting = len(self.streams)
        self.usage = RolloutUsage()
        self.busy_seconds = 0.0

    def close(self, usage: RolloutUsage, busy_seconds: float) -> None:
        """The last stream is out: hand over."""
        self.usage, self.busy_seconds = usage, busy_seconds
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: WorkerError) -> None:
        """The engine died."""
        if not self.done.done():
            self.done.set_exception(error)

    def result(self, version: int, max_response_tokens: int, rewards: Sequence[float]) -> Group:
        """The group with what was generated under ``version``; finished samples have their reward."""
        samples = list(self.group.samples)
        for stream in self.streams:
            samples[stream.index] = _extended(samples[stream.index], stream, version, max_response_tokens, rewards)
        return replace(self.group, samples=tuple(samples))


def _extended(sample: Sample, stream: Stream, version: int, cap: int, rewards: Sequence[float]) -> Sample:
    if stream.remaining:
        return sample.extended(version, stream.generated) if stream.generated else sample
    reason = "length" if sample.num_tokens + stream.generated >= cap else "stop"
    reward = rewards[stream.index]
    if not sample.spans:
        return Sample((VersionSpan(version, stream.generated),), finish_reason=reason, reward=reward)
    return replace(sample.extended(version, stream.generated, finish_reason=reason), reward=reward)
