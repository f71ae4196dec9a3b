"""What trainer stage-time models share: chunk costs, list scheduling over replicas, overlap with communication."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace

from bidirl.core.chunks import SubStage
from bidirl.core.interfaces import StageModel
from bidirl.core.work import TrainerWork

Chunks = tuple[tuple[SubStage, int], ...]


@dataclass(frozen=True, slots=True)
class SubStageCost:
    """Seconds of a chunk of t tokens: τ + α·(t/1000)^r.

    Attributes:
        base_seconds: τ_s.
        ktoken_seconds: α_s, seconds at 1,000 tokens beyond τ_s.
        exponent: r_s.
    """

    base_seconds: float = 0.0
    ktoken_seconds: float = 0.0
    exponent: float = 1.0

    def seconds(self, tokens: float) -> float:
        """Seconds of one chunk."""
        return float(self.base_seconds + self.ktoken_seconds * (tokens / 1000.0) ** self.exponent)

    def scaled(self, factor: float) -> SubStageCost:
        """All seconds times ``factor``."""
        return SubStageCost(self.base_seconds * factor, self.ktoken_seconds * factor, self.exponent)


def list_schedule(costs: Sequence[float], replicas: int) -> float:
    """Makespan when jobs, in order, each go to the replica that is free first (replica-max)."""
    if not costs:
        return 0.0
    if replicas <= 0:
        return float("inf")
    if replicas == 1:
        return sum(costs)
    if replicas >= len(costs):
        return max(costs)
    loads = [0.0] * replicas
    for cost in costs:
        heapreplace(loads, loads[0] + cost)
    return max(loads)


def overlap(compute_seconds: float, comm_seconds: float, norm: float) -> float:
    """(t_comp^p + t_comm^p)^(1/p): p = 1 adds, p = inf hides the shorter one completely."""
    if comm_seconds == 0.0 or norm == 1.0:
        return compute_seconds + comm_seconds
    longer, shorter = max(compute_seconds, comm_seconds), min(compute_seconds, comm_seconds)
    if norm == float("inf") or shorter == 0.0:
        return longer
    return float(longer * (1.0 + (shorter / longer) ** norm) ** (1.0 / norm))


class TrainerModel(StageModel[TrainerWork, TrainerWork]):
    """Ordered chunks dealt to the replica that is free first; communication overlaps by a p-norm.

    Dependencies between sub-stages are not modelled: chunks of one sub-stage are many and their successors wait behind
    them. Work without chunks takes no time, whatever it would communicate.
    """

    overlap_norm: float = 1.0
    _cached_chunks: Chunks = ()
    _cached_costs: Sequence[float] = ()

    @abstractmethod
    def chunk_costs(self, chunks: Chunks) -> list[float]:
        """Seconds of each chunk on one replica."""

    @abstractmethod
    def comm_seconds(self, num_bytes: float) -> float:
        """α_comm + β_comm · bytes; 0 for no bytes."""

    def _costs(self, chunks: Chunks) -> Sequence[float]:
        """Costs of the chunks; those of a head or a tail of the last list are known (policies try many cuts of one)."""
        count, known, costs = len(chunks), self._cached_chunks, self._cached_costs
        if chunks is known:
            return costs
        if count and known[:count] == chunks:
            return costs[:count]
        if count and known[-count:] == chunks:
            return costs[-count:]
        self._cached_chunks, self._cached_costs = chunks, self.chunk_costs(chunks)
        return self._cached_costs

    def _forget_costs(self) -> None:
        self._cached_chunks, self._cached_costs = (), ()

    def predict(self, work: TrainerWork, replicas: int) -> float:
        """Seconds of the slowest replica; ``inf`` with no replica and some work, 0 with no work."""
        compute = list_schedule(self._costs(work.chunks), replicas)
        if not work.comm_bytes or not work.chunks:
            return compute
        return overlap(compute, self.comm_seconds(work.comm_bytes), self.overlap_norm)

    def predict_usage(self, usage: TrainerWork) -> float:
        """Seconds that one replica needs for these chunks."""
        return self.predict(usage, 1)
