"""The learner of a simulated run: which chunks of the batch were trained where, and what may be merged and stepped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bidirl.core.chunks import Chunk, ChunkResult, SubStage
from bidirl.core.cluster import BatchInfo
from bidirl.core.digests import chained, group_digest
from bidirl.core.errors import InvariantError
from bidirl.core.groups import Group
from bidirl.core.topology import Worker


def trainable_tokens(group: Group) -> int:
    """Response tokens that have an advantage: none where all rewards are equal (invariant 7)."""
    rewards = {sample.reward for sample in group.samples}
    return 0 if len(rewards) == 1 else group.num_response_tokens


class SimLearner:
    """No parameters: only the bookkeeping that a real learner would get wrong silently.

    In place of parameters, ``digest`` hashes every batch that was stepped on, in order.
    """

    def __init__(self) -> None:
        self.version = 0
        self.exported = 0
        self.digest = ""
        self.oldest_kept = 0
        self._batch: Sequence[Group] | None = None
        self._trained: set[tuple[int, int]] = set()
        self._unmerged: dict[Worker, list[tuple[int, int]]] = {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, between two batches."""
        return {"version": self.version, "digest": self.digest}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state`` returned; its version is exported."""
        self.version = self.exported = self.oldest_kept = int(state["version"])
        self.digest = str(state["digest"])

    def begin_batch(self, version: int, groups: Sequence[Group]) -> BatchInfo:
        """Take a batch for the step from ``version``."""
        if version != self.version:
            raise InvariantError(7, f"begin_batch for version {version}, the trainers are at {self.version}")
        for group in groups:
            if not group.finished or any(sample.reward is None for sample in group.samples):
                raise InvariantError(2, f"group {group.group_id} is trained on before it is finished and scored")
        self._batch = groups
        self._trained.clear()
        self._unmerged.clear()
        tokens = [trainable_tokens(group) for group in groups]
        filtered = sum(len(group.samples) for group, count in zip(groups, tokens, strict=True) if not count)
        return BatchInfo(sum(tokens), {"reward/num_zero_variance_filtered": float(filtered)})

    def check_chunks(self, chunks: Sequence[Chunk], inputs: Sequence[Sequence[ChunkResult]]) -> None:
        """Chunks must belong to the batch, once each, with one result per earlier sub-stage."""
        if self._batch is None:
            raise InvariantError(5, "train_chunks without a batch")
        if len(chunks) != len(inputs):
            raise InvariantError(5, f"train_chunks got {len(chunks)} chunks and {len(inputs)} inputs")
        for chunk, results in zip(chunks, inputs, strict=True):
            if chunk.chunk_id != chunk.part and not results:
                raise InvariantError(5, f"chunk {chunk.chunk_id} runs without the results of its earlier sub-stages")
            if [result.chunk_id for result in results] != sorted({result.chunk_id for result in results}):
                raise InvariantError(5, f"inputs of chunk {chunk.chunk_id} are not in chunk order")
            for ref in chunk.sequences:
                group = self._batch[ref.group_index]
                tokens = group.prompt.num_tokens + group.samples[ref.sample_index].num_tokens
                if tokens != ref.num_tokens:
                    raise InvariantError(2, f"chunk {chunk.chunk_id} counts {ref.num_tokens} tokens for {tokens}")

    def trained(self, worker: Worker, chunk: Chunk) -> None:
        """The gradients of an actor-update chunk lie at ``worker``."""
        if chunk.sub_stage is not SubStage.ACTOR_UPDATE:
            return
        for ref in chunk.sequences:
            key = (ref.group_index, ref.sample_index)
            if key in self._trained:
                raise InvariantError(6, f"sample {key} of the batch was trained twice")
            self._trained.add(key)
            if not worker.primary:
                self._unmerged.setdefault(worker, []).append(key)

    def merge(self, workers: Iterable[Worker]) -> None:
        """These workers' gradients are now the primaries'."""
        for worker in workers:
            self._unmerged.pop(worker, None)

    def forget(self, workers: Iterable[Worker]) -> None:
        """Gradients that lay at these workers are gone."""
        for worker in workers:
            self._trained.difference_update(self._unmerged.pop(worker, ()))

    def check_switch_out(self, worker: Worker) -> None:
        """A trainer must not fall asleep on gradients."""
        if worker in self._unmerged:
            raise InvariantError(6, f"switch_out of {worker.name} would lose its gradients")

    def check_step(self, version: int) -> None:
        """The optimizer step needs all gradients of the batch, in the primaries."""
        if self._batch is None or version != self.version:
            raise InvariantError(7, f"optimizer_step from version {version} at {self.version}, or without a batch")
        if self._unmerged:
            raise InvariantError(6, f"optimizer_step before the gradients of {next(iter(self._unmerged)).name} merged")
        missing = sum(len(group.samples) for group in self._batch) - len(self._trained)
        if missing:
            raise InvariantError(6, f"optimizer_step with {missing} samples of the batch not trained")

    def step(self) -> Mapping[str, float]:
        """One version on."""
        self.version += 1
        self.digest = chained(self.digest, (group_digest(group) for group in self._batch or ()))
        self._batch = None
        return {}

    def check_export(self, version: int) -> None:
        """Only what the trainers have can be exported."""
        if version != self.version:
            raise InvariantError(8, f"export of version {version}, the trainers are at {self.version}")

    def check_available(self, version: int, receiver: Worker) -> None:
        """A receiver can load exported versions that were kept."""
        if not self.oldest_kept <= version <= self.exported:
            raise InvariantError(8, f"{receiver.name} asks for version {version}, exported is {self.exported}")
