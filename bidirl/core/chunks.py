"""Chunks: micro-batches of one trainer sub-stage, the unit of trainer work, and their queue (the paper's Table 2).

    queued ──pull──▶ running ──finish──▶ finished
      │  ▲              │
      │  └── requeue ───┘  (only when the worker that ran it was lost)
      └──cancel──▶ cancelled

Results are merged in chunk order, whoever produced them (invariant 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bidirl.core.errors import InvariantError
from bidirl.core.groups import Group


class SubStage(StrEnum):
    """The trainer's sub-stages, in the order in which a batch passes them."""

    OLD_LOGPROB = "old_logprob"
    REF_LOGPROB = "ref_logprob"
    ACTOR_UPDATE = "actor_update"


class ChunkState(StrEnum):
    """Table 2 of the paper."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class SequenceRef:
    """One sample of the batch: ``batch.groups[group_index].samples[sample_index]``."""

    group_index: int
    sample_index: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A micro-batch of ``sub_stage``. ``chunk_id`` is its place in the canonical order of the whole batch.

    ``part`` is the index of the micro-batch within its sub-stage: equal parts of all sub-stages hold the same
    sequences, so a chunk depends on exactly the chunk of the same part in the sub-stage before.
    """

    chunk_id: int
    sub_stage: SubStage
    part: int
    sequences: tuple[SequenceRef, ...]
    num_tokens: int = field(init=False, compare=False, repr=False)
    """Prompt and response tokens of all sequences. Counted once: every opportunity asks."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_tokens", sum(ref.num_tokens for ref in self.sequences))


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """What a trainer returns for one chunk: an opaque ``payload`` (log-probs) and scalar ``metrics`` (sums)."""

    chunk_id: int
    payload: Any = None
    metrics: dict[str, float] | None = None


_SMALLEST_SHARE = 4
"""Chunks shrink to this part of the largest and no further: each has a fixed cost."""


def plan_chunks(
    groups: Sequence[Group], sub_stages: Sequence[SubStage], max_tokens_per_chunk: int, num_replicas: int = 1
) -> tuple[Chunk, ...]:
    """Cut a batch into stage-ordered chunks of at most ``max_tokens_per_chunk`` tokens (a longer sequence is alone).

    Longest sequences first: those of one chunk have similar lengths, so little of a padded micro-batch is padding and a
    chunk's tokens say what it costs. Where ``num_replicas`` may pull at once, chunks shrink towards the end, each to
    its replica's share of the tokens that are left (guided self-scheduling, Polychronopoulos and Kuck, 1987): no
    replica waits for another's large last chunk.
    """
    refs = [
        SequenceRef(g, i, group.prompt.num_tokens + sample.num_tokens)
        for g, group in enumerate(groups)
        for i, sample in enumerate(group.samples)
    ]
    parts: list[tuple[SequenceRef, ...]] = []
    current: list[SequenceRef] = []
    tokens, left = 0, sum(ref.num_tokens for ref in refs)
    smallest = max_tokens_per_chunk // _SMALLEST_SHARE
    for ref in sorted(refs, key=lambda ref: (-ref.num_tokens, ref.group_index, ref.sample_index)):
        limit = min(max_tokens_per_chunk, max(smallest, left // num_replicas))
        if current and tokens + ref.num_tokens > limit:
            parts.append(tuple(current))
            left -= tokens
            current, tokens = [], 0
        current.append(ref)
        tokens += ref.num_tokens
    if current:
        parts.append(tuple(current))
    return tuple(
        Chunk(stage_index * len(parts) + p, sub_stage, p, refs)
        for stage_index, sub_stage in enumerate(sub_stages)
        for p, refs in enumerate(parts)
    )


class ChunkQueue:
    """The chunks of one batch with their states. Pulled from the head; merged in order."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = tuple(chunks)
        self._states = [ChunkState.QUEUED] * len(self.chunks)
        self._counts = dict.fromkeys(ChunkState, 0) | {ChunkState.QUEUED: len(self.chunks)}
        self._sizes = tuple((chunk.sub_stage, chunk.num_tokens) for chunk in self.chunks)
        self._queued_sizes: tuple[tuple[SubStage, int], ...] | None = None
        self._results: list[ChunkResult | None] = [None] * len(self.chunks)
        self._num_parts = max((chunk.part for chunk in self.chunks), default=-1) + 1
        self._head = 0

    def state(self, chunk_id: int) -> ChunkState:
        """State of one chunk."""
        return self._states[chunk_id]

    @property
    def queued(self) -> tuple[Chunk, ...]:
        """Chunks that nobody has started, in order."""
        return tuple(c for c in self.chunks[self._head :] if self._states[c.chunk_id] is ChunkState.QUEUED)

    @property
    def queued_sizes(self) -> tuple[tuple[SubStage, int], ...]:
        """``(sub_stage, tokens)`` of the queued chunks, in order; the same object until a chunk moves."""
        if self._queued_sizes is None:
            rest = self._sizes[self._head :]
            if len(rest) != self.num_queued:
                rest = tuple((chunk.sub_stage, chunk.num_tokens) for chunk in self.queued)
            self._queued_sizes = rest
        return self._queued_sizes

    @property
    def num_queued(self) -> int:
        """Number of queued chunks."""
        return self._counts[ChunkState.QUEUED]

    @property
    def done(self) -> bool:
        """Whether every chunk is finished or cancelled."""
        return self._counts[ChunkState.FINISHED] + self._counts[ChunkState.CANCELLED] == len(self.chunks)

    def runnable(self, limit: int) -> tuple[Chunk, ...]:
        """Up to ``limit`` chunks at the head whose input from the sub-stage before is finished."""
        found: list[Chunk] = []
        for chunk in self.chunks[self._head :]:
            if len(found) == limit:
                break
            if self._states[chunk.chunk_id] is not ChunkState.QUEUED:
                continue
            if not self._inputs_finished(chunk):
                break
            found.append(chunk)
        return tuple(found)

    def pull(self, limit: int) -> tuple[Chunk, ...]:
        """Move up to ``limit`` runnable chunks from queued to running."""
        taken = self.runnable(limit)
        for chunk in taken:
            self._move(chunk.chunk_id, ChunkState.QUEUED, ChunkState.RUNNING)
        while self._head < len(self._states) and self._states[self._head] is not ChunkState.QUEUED:
            self._head += 1
        return taken

    def finish(self, result: ChunkResult) -> None:
        """Record the result of a running chunk."""
        self._move(result.chunk_id, ChunkState.RUNNING, ChunkState.FINISHED)
        self._results[result.chunk_id] = result

    def requeue(self, chunk_id: int) -> None:
        """Give back a chunk whose worker was lost or whose lease was revoked before it began."""
        self._move(chunk_id, ChunkState.RUNNING, ChunkState.QUEUED)
        self._head = min(self._head, chunk_id)

    def lose(self, chunk_id: int) -> None:
        """A finished chunk must run again: its gradients were lost with the worker that held them."""
        self._move(chunk_id, ChunkState.FINISHED, ChunkState.QUEUED)
        self._results[chunk_id] = None
        self._head = min(self._head, chunk_id)

    def cancel_queued(self) -> tuple[Chunk, ...]:
        """Cancel every chunk that nobody has started."""
        cancelled = self.queued
        for chunk in cancelled:
            self._move(chunk.chunk_id, ChunkState.QUEUED, ChunkState.CANCELLED)
        return cancelled

    def inputs(self, chunk: Chunk) -> tuple[ChunkResult, ...]:
        """Finished results of the same part in all earlier sub-stages, in sub-stage order."""
        ids = range(chunk.part, chunk.chunk_id, self._num_parts)
        return tuple(result for i in ids if (result := self._results[i]) is not None)

    def merged(self) -> tuple[ChunkResult, ...]:
        """All results in chunk order (invariant 5).

        Raises:
            InvariantError: if a chunk is still queued or running.
        """
        if not self.done:
            raise InvariantError(5, "results were merged before every chunk had finished")
        return tuple(result for result in self._results if result is not None)

    def _inputs_finished(self, chunk: Chunk) -> bool:
        before = chunk.chunk_id - self._num_parts
        return before < 0 or self._states[before] is ChunkState.FINISHED

    def _move(self, chunk_id: int, source: ChunkState, target: ChunkState) -> None:
        if self._states[chunk_id] is not source:
            raise InvariantError(5, f"chunk {chunk_id} is {self._states[chunk_id]}, cannot go {source} → {target}")
        self._states[chunk_id] = target
        self._counts[source] -= 1
        self._counts[target] += 1
        if ChunkState.QUEUED in (source, target):
            self._queued_sizes = None
