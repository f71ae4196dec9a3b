"""How many chunks a ready trainer side takes from the head of the queue."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bidirl.core.errors import ConfigError
from bidirl.core.opportunity import PullView
from bidirl.core.work import TrainerWork


class ChunkRule(ABC):
    """The chunk half of a splitter. Pure."""

    @abstractmethod
    def pull(self, view: PullView) -> int:
        """How many of the queued chunks the asking side takes; ``view`` has at least one."""


class LazyPull(ChunkRule):
    """LazyPull: a ready side takes what it can start at once, at most s_max.

    Args:
        max_chunks: s_max; ``None``: one per replica of the asking side (the paper's value is unknown).
    """

    def __init__(self, *, max_chunks: int | None = None) -> None:
        if max_chunks is not None and max_chunks < 1:
            raise ConfigError(f"max_chunks is {max_chunks}: it must be at least 1")
        self.max_chunks = max_chunks

    def __repr__(self) -> str:
        """Shows the options."""
        return f"{type(self).__name__}(max_chunks={self.max_chunks})"

    def pull(self, view: PullView) -> int:
        """At most s_max chunks."""
        limit = self.max_chunks if self.max_chunks is not None else max(1, view.own_replicas)
        return min(limit, len(view.queued.chunks))


class JointTail(LazyPull):
    """LazyPull, and JointTailSplit in the tail window. The rule for the tail is ours: the paper's is unknown.

    The tail window is the last ``tail_rounds`` chunks per replica. There the asking side considers every cut of the
    queue, k chunks for itself and the rest for the other side, and goes for the one that ends first:

        min over k of max(own(k) + own_overhead if k > 0, other_busy + other(rest))

    Ties go to the primaries, who have no overhead. For one chunk this says: take it only if you finish it no later
    than the other side would.

    Args:
        max_chunks: s_max; ``None``: one per replica of the asking side.
        tail_rounds: chunks per replica, both sides counted, that form the tail window.
    """

    def __init__(self, *, max_chunks: int | None = None, tail_rounds: int = 2) -> None:
        super().__init__(max_chunks=max_chunks)
        self.tail_rounds = tail_rounds

    def pull(self, view: PullView) -> int:
        """At most s_max chunks, fewer or none if the other side would end the tail sooner."""
        lazy = super().pull(view)
        count = len(view.queued.chunks)
        if view.other_replicas <= 0 or count > self.tail_rounds * (view.own_replicas + view.other_replicas):
            return lazy
        cuts = range(count, -1, -1) if view.primary_side else range(count + 1)
        return min(lazy, min(cuts, key=lambda k: self._end_seconds(view, k)))

    @staticmethod
    def _end_seconds(view: PullView, own_chunks: int) -> float:
        own, rest = view.queued.chunks[:own_chunks], view.queued.chunks[own_chunks:]
        own_end = other_end = 0.0
        if own:
            own_end = view.trainer_model.predict(TrainerWork(own), view.own_replicas) + view.own_overhead_seconds
        if rest:
            other_end = view.other_busy_seconds + view.trainer_model.predict(TrainerWork(rest), view.other_replicas)
        return max(own_end, other_end, view.other_busy_seconds)
