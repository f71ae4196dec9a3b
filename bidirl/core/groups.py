"""Prompts, samples and groups: the units of rollout work.

A *group* is one prompt and its G samples. It is issued once, may be interrupted and resumed on other workers, and is
consumed whole. Every generated token records the weight *version* that generated it, as run-length
:class:`VersionSpan` entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bidirl.core.errors import InvariantError


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """``num_tokens`` consecutive response tokens that were generated under weight ``version``."""

    version: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """The immutable input of a group: a pure function of the data seed and ``group_id``.

    Attributes:
        group_id: position in the data stream, from 0; the identity of the group.
        num_tokens: prompt length.
        token_ids: prompt tokens, shape ``(num_tokens,)``, int32; ``None`` in a world that models lengths only.
        payload: what the reward function needs (for example the reference answer); never looked at by core.
    """

    group_id: int
    num_tokens: int
    token_ids: NDArray[np.int32] | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """One response so far.

    Attributes:
        spans: run-length versions of the response tokens, oldest first.
        token_ids: response tokens, shape ``(num_tokens,)``, int32; ``None`` in a world that models lengths only.
        logprobs: behaviour log-prob of each response token, shape ``(num_tokens,)``, float32; ``None`` likewise.
        finish_reason: ``"stop"``, ``"length"``, or ``None`` while unfinished.
        reward: scalar reward, known once the sample is finished and scored.
    """

    spans: tuple[VersionSpan, ...] = ()
    token_ids: NDArray[np.int32] | None = None
    logprobs: NDArray[np.float32] | None = None
    finish_reason: str | None = None
    reward: float | None = None

    @property
    def num_tokens(self) -> int:
        """Response tokens so far."""
        return sum(span.num_tokens for span in self.spans)

    @property
    def finished(self) -> bool:
        """Whether generation has ended."""
        return self.finish_reason is not None

    def check(self) -> None:
        """Invariant 2: tokens, log-probs and versions have equal lengths.

        Raises:
            InvariantError: if they do not.
        """
        for name, values in (("token_ids", self.token_ids), ("logprobs", self.logprobs)):
            if values is not None and len(values) != self.num_tokens:
                raise InvariantError(2, f"{name} has {len(values)} entries for {self.num_tokens} tokens")

    def extended(
        self,
        version: int,
        num_tokens: int,
        token_ids: NDArray[np.int32] | None = None,
        logprobs: NDArray[np.float32] | None = None,
        finish_reason: str | None = None,
    ) -> Sample:
        """This sample with ``num_tokens`` more tokens of ``version`` (merged into the last span where equal)."""
        spans = self.spans
        if num_tokens:
            if spans and spans[-1].version == version:
                spans = (*spans[:-1], VersionSpan(version, spans[-1].num_tokens + num_tokens))
            else:
                spans = (*spans, VersionSpan(version, num_tokens))
        return replace(
            self,
            spans=spans,
            token_ids=_joined(self.token_ids, token_ids),
            logprobs=_joined(self.logprobs, logprobs),
            finish_reason=finish_reason,
        )


def _joined(head: NDArray[Any] | None, tail: NDArray[Any] | None) -> NDArray[Any] | None:
    if head is None or tail is None:
        return tail if head is None else head
    joined: NDArray[Any] = np.concatenate([head, tail])
    return joined


@dataclass(frozen=True, slots=True)
class Group:
    """One prompt with its G samples, at one moment of its life. Immutable: workers return new ones.

    Attributes:
        prompt: the input.
        samples: exactly G samples, in sample order.
        started_version: version of the weights under which the group first started; bounds its staleness from above.
        num_interruptions: how often it was stopped with an unfinished sample (partial rollout).
        error: why the group cannot be trained (its reward function raised, …); it is dropped with this reason.
    """

    prompt: Prompt
    samples: tuple[Sample, ...]
    started_version: int
    num_interruptions: int = 0
    error: str | None = None

    @property
    def group_id(self) -> int:
        """Identity of the group: its position in the data stream."""
        return self.prompt.group_id

    @property
    def finished(self) -> bool:
        """Whether every sample has ended."""
        return all(sample.finished for sample in self.samples)

    @property
    def num_response_tokens(self) -> int:
        """Response tokens of all samples so far."""
        return sum(sample.num_tokens for sample in self.samples)

    @property
    def num_tokens(self) -> int:
        """Prompt and response tokens, the prompt counted once per sample: what the trainer processes."""
        return self.prompt.num_tokens * len(self.samples) + self.num_response_tokens

    @property
    def oldest_version(self) -> int:
        """Oldest version that generated any token (``started_version`` while there is none)."""
        versions = [span.version for sample in self.samples for span in sample.spans]
        return min(versions, default=self.started_version)

    @property
    def version_span(self) -> int:
        """Newest minus oldest version over all tokens: 0 for a group that no weight update crossed."""
        versions = [span.version for sample in self.samples for span in sample.spans]
        return max(versions) - min(versions) if versions else 0


def new_group(prompt: Prompt, num_samples: int, version: int) -> Group:
    """A group that has not generated anything yet, started under ``version``."""
    return Group(prompt, tuple(Sample() for _ in range(num_samples)), version)
