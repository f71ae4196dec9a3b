"""The one seam under the coordinator. Two implementations: SimCluster (virtual time) and RayCluster (real engines).

The coordinator owns all state of the run; a cluster only carries out verbs. Every verb is awaitable, is cancelled by
cancelling its task, and raises :class:`~bidirl.core.errors.WorkerError` when the worker behind it is lost. A lost
rollouter or auxiliary is replaced by ``restart``; until then every verb on it raises. A lost primary trainer ends the
run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bidirl.core.chunks import Chunk, ChunkResult
from bidirl.core.groups import Group, Prompt
from bidirl.core.topology import Topology, Worker
from bidirl.core.work import RolloutUsage


@dataclass(frozen=True, slots=True)
class RolloutReport:
    """What ``generate`` returns: the group as far as it came, and the worker's cumulative counters.

    Attributes:
        group: finished, or with unfinished samples if it was interrupted.
        usage: cumulative counters of the worker since start.
        busy_seconds: cumulative seconds in which the worker's engine had work.
        overhead_seconds: time of this call in which the engine did not have it (transport, scoring).
    """

    group: Group
    usage: RolloutUsage
    busy_seconds: float
    overhead_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ChunkReport:
    """Results of the chunks of one call, with the seconds each spent computing (parallel replicas overlap)."""

    results: tuple[ChunkResult, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """What the learner knows of a batch before it trains on it.

    ``num_trainable_tokens`` counts response tokens that can have a gradient; 0 means no optimizer step (invariant 7).
    ``group_order`` is the canonical order. ``metrics`` are scalars for the step's row.
    """

    num_trainable_tokens: int
    metrics: Mapping[str, float] = field(default_factory=dict)


class Cluster(ABC):
    """Devices, workers and the verbs on them."""

    @property
    @abstractmethod
    def world(self) -> str:
        """``"sim"`` or ``"ray"``; for labelling outputs only. Nothing may branch on it."""

    @property
    @abstractmethod
    def topology(self) -> Topology:
        """Where everything is."""

    @property
    @abstractmethod
    def max_num_seqs(self) -> int:
        """Sequences that one rollout replica runs at once."""

    @abstractmethod
    def now_seconds(self) -> float:
        """Monotonic seconds since the cluster was built."""

    @abstractmethod
    async def start(self) -> None:
        """Start every worker at version 0: primaries active, auxiliaries passive."""

    @abstractmethod
    async def close(self) -> None:
        """Stop every worker. Idempotent, never raises, leaves no process behind."""

    @abstractmethod
    def prompt(self, group_id: int) -> Prompt:
        """The prompt at this position of the data stream; a pure function of seed and ``group_id``."""

    @abstractmethod
    async def generate(self, worker: Worker, group: Group) -> RolloutReport:
        """Generate until every sample has ended, or until ``interrupt`` names the group. Finished samples are scored.

        Tokens generated here carry the version that the worker has loaded.
        """

    @abstractmethod
    async def interrupt(self, worker: Worker, group_ids: Sequence[int]) -> None:
        """Make the ``generate`` calls of these groups return early, with their prefixes."""

    @abstractmethod
    async def begin_batch(self, step: int, version: int, groups: Sequence[Group]) -> BatchInfo:
        """Give the learner the batch: advantages and global denominators are fixed here, before any chunk runs."""

    @abstractmethod
    async def train_chunks(
        self, workers: Sequence[Worker], chunks: Sequence[Chunk], inputs: Sequence[Sequence[ChunkResult]]
    ) -> ChunkReport:
        """Run chunks of the current batch on one side (all primary trainers in lockstep, or the trainers of one lease).

        ``inputs[i]`` are the finished results of chunk i's part in earlier sub-stages. Gradients accumulate where the
        chunk ran until ``merge_gradients`` or ``optimizer_step``.
        """

    @abstractmethod
    async def merge_gradients(self, workers: Sequence[Worker]) -> None:
        """Move what auxiliaries accumulated into the primary trainers (C_grad).

        Raises:
            GradientsLost: if an auxiliary was lost before that: then none of them is merged, and none holds any.
        """

    @abstractmethod
    async def optimizer_step(self, version: int) -> Mapping[str, float]:
        """Apply the one optimizer step that takes ``version`` to ``version + 1``; returns learner metrics."""

    @abstractmethod
    async def parameter_digest(self) -> str:
        """Hash of the trainers' parameters, bit for bit: equal exactly where all parameters are (invariant 11)."""

    @abstractmethod
    async def export_weights(self, version: int, oldest_needed: int | None = None) -> None:
        """Make the trainers' weights of ``version`` available to every receiver; busy time of the trainers.

        Exported versions from ``oldest_needed`` on (default: the one before ``version``) stay available.
        """

    @abstractmethod
    async def load_weights(self, worker: Worker, version: int) -> int:
        """Load exported weights into an active rollouter and return the version it confirms (invariant 8)."""

    @abstractmethod
    async def switch_in(self, worker: Worker, version: int) -> int:
        """Wake an auxiliary worker with weights of ``version``; its device's primary is put to sleep first.

        ``version`` is an exported one that is still available.

        Returns the version it confirms. If it raises, the auxiliary is passive again and the primary works.
        """

    @abstractmethod
    async def switch_out(self, worker: Worker) -> None:
        """Put an auxiliary to sleep and wake the primaries of its devices with the weights they had."""

    @abstractmethod
    async def save_learner(self, directory: Path, older_versions: Sequence[int]) -> None:
        """Write the trainers' state (parameters, optimizer, version) and these older exported versions."""

    @abstractmethod
    async def load_learner(self, directory: Path, version: int, older_versions: Sequence[int]) -> None:
        """Bring the trainers of a started cluster to what ``save_learner`` wrote at ``version``, and export it again.

        ``older_versions`` are those that it was given then; they can be loaded again, too.

        Raises:
            ConfigError: if the files do not fit this job.
        """

    @abstractmethod
    async def restart(self, worker: Worker) -> None:
        """Replace a lost worker, on which no call is open: end what is left of it and start it anew.

        A primary rollouter comes back active; ``load_weights`` must follow. An auxiliary comes back passive, without
        gradients, and the primaries of its devices are active. Primary trainers hold the state of the run and are not
        restarted.
        """
