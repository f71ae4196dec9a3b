"""Splitters, composed of one rule for groups and one for chunks."""

from __future__ import annotations

from bidirl.core.interfaces import Splitter
from bidirl.core.opportunity import GroupSplitView, PullView
from bidirl.policies.chunk_rules import ChunkRule, JointTail
from bidirl.policies.group_rules import CapacityGroups, GroupRule, ResidualLengthGroups


class ComposedSplitter(Splitter):
    """A rule for groups and a rule for chunks.

    Args:
        groups: which missing groups go to the auxiliaries.
        chunks: how many chunks a ready side takes.
    """

    def __init__(self, *, groups: GroupRule, chunks: ChunkRule | None = None) -> None:
        self.groups = groups
        self.chunks = chunks if chunks is not None else JointTail()

    def __repr__(self) -> str:
        """Shows the stack."""
        return f"{type(self).__name__}(groups={self.groups!r}, chunks={self.chunks!r})"

    def split_groups(self, view: GroupSplitView) -> tuple[int, ...]:
        """As the group rule says."""
        return self.groups.split(view) if view.missing and view.auxiliary_replicas > 0 else ()

    def pull_chunks(self, view: PullView) -> int:
        """As the chunk rule says, within what is queued."""
        return min(len(view.queued.chunks), self.chunks.pull(view)) if view.queued.chunks else 0


class CapacitySplit(ComposedSplitter):
    """The paper's: Eq. (6) for groups; lazy pulls and the joint tail for chunks.

    Args:
        rebalance: whether auxiliaries that run dry get more groups before the lease ends.
        chunks: how many chunks a ready side takes; :class:`JointTail` by default.
    """

    def __init__(self, *, rebalance: bool = True, chunks: ChunkRule | None = None) -> None:
        super().__init__(groups=CapacityGroups(rebalance=rebalance), chunks=chunks)


class ResidualLengthSplit(ComposedSplitter):
    """Our own: groups by predicted remaining tokens instead of by number.

    Args:
        expected_tokens: response tokens that are expected of a sample that has not begun.
        max_response_tokens: the cap on a response; 0 if unknown.
        rebalance: whether auxiliaries that run dry get more groups before the lease ends.
        chunks: how many chunks a ready side takes; :class:`JointTail` by default.
    """

    def __init__(
        self,
        *,
        expected_tokens: float = 512.0,
        max_response_tokens: int = 0,
        rebalance: bool = True,
        chunks: ChunkRule | None = None,
    ) -> None:
        super().__init__(
            groups=ResidualLengthGroups(
                expected_tokens=expected_tokens, max_response_tokens=max_response_tokens, rebalance=rebalance
            ),
            chunks=chunks,
        )
