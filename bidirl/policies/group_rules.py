"""Which missing groups the auxiliary rollouters run."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bidirl.core.errors import ConfigError
from bidirl.core.opportunity import GroupSplitView, MissingGroup


class GroupRule(ABC):
    """The group half of a splitter. Pure."""

    @abstractmethod
    def split(self, view: GroupSplitView) -> tuple[int, ...]:
        """Ids of the groups for the auxiliaries; ``view`` has at least one missing group and one auxiliary."""


def capacity_share(groups: int, primary_replicas: int, auxiliary_replicas: int) -> int:
    """Eq. (6): Q_a = round(d_a / (d_p + d_a) · Q_r), halves rounded up, in exact integer arithmetic."""
    replicas = primary_replicas + auxiliary_replicas
    if auxiliary_replicas <= 0 or groups <= 0:
        return 0
    return (2 * auxiliary_replicas * groups + replicas) // (2 * replicas)


def leave_one_each(view: GroupSplitView) -> int:
    """Groups that a later call may move: what is pending, or more than one running group per primary replica.

    Moving the only group of a primary would idle one device to feed another and cost a re-prefill (ours).
    """
    pending = sum(not group.running for group in view.missing)
    return max(pending, len(view.missing) - view.primary_replicas)


class CapacityGroups(GroupRule):
    """Eq. (6): as many groups as the auxiliaries' share of all replicas. Predicts no lengths.

    Pending groups go first, in feeding order, then running ones with the fewest generated tokens. With no primary
    replica everything goes to the auxiliaries. Later calls apply Eq. (6) to what is still missing, groups on
    auxiliaries included, and never move the only group of a primary (:func:`leave_one_each`).

    Args:
        rebalance: whether auxiliaries that run dry get more groups before the lease ends.
    """

    def __init__(self, *, rebalance: bool = True) -> None:
        self.rebalance = rebalance

    def __repr__(self) -> str:
        """Shows the options."""
        return f"CapacityGroups(rebalance={self.rebalance})"

    def split(self, view: GroupSplitView) -> tuple[int, ...]:
        """Ids by Eq. (6)."""
        if not view.first and not self.rebalance:
            return ()
        total = len(view.missing) + view.auxiliary_groups
        wanted = capacity_share(total, view.primary_replicas, view.auxiliary_replicas) - view.auxiliary_groups
        if not view.first:
            wanted = min(wanted, leave_one_each(view))
        pending = [group for group in view.missing if not group.running]
        running = sorted((g for g in view.missing if g.running), key=lambda g: sum(g.generated_tokens))
        return tuple(group.group_id for group in (pending + running)[: max(0, wanted)])


class ResidualLengthGroups(GroupRule):
    """Gives the auxiliaries their share of the *predicted remaining tokens* (ours; no oracle).

    A sample with g tokens is expected to need max(expected − g, g / 2) more, at most up to the cap: short of the
    expectation it is like any other, past it the longer it has run the longer it will (long-tailed lengths). Pending
    groups go first; then running ones for which re-prefilling buys most (most remaining tokens per token held). Groups
    are added while they bring the auxiliaries' load closer to their share.

    Wins over Eq. (6) when running groups differ much in progress; equals it when all are alike; loses if lengths are so
    short-tailed that a long prefix means nearly finished.

    Args:
        expected_tokens: response tokens that are expected of a sample that has not begun.
        max_response_tokens: the cap on a response; 0 if unknown.
        rebalance: whether auxiliaries that run dry get more groups before the lease ends.
    """

    def __init__(self, *, expected_tokens: float = 512.0, max_response_tokens: int = 0, rebalance: bool = True) -> None:
        if expected_tokens <= 0:
            raise ConfigError(f"expected_tokens is {expected_tokens}: it must be above 0")
        self.expected_tokens = expected_tokens
        self.max_response_tokens = max_response_tokens
        self.rebalance = rebalance

    def __repr__(self) -> str:
        """Shows the options."""
        return f"ResidualLengthGroups(expected_tokens={self.expected_tokens}, rebalance={self.rebalance})"

    def residual_tokens(self, generated: int) -> float:
        """Expected remaining tokens of a sample with ``generated`` tokens; at least 1."""
        residual = max(self.expected_tokens - generated, generated / 2.0)
        if self.max_response_tokens:
            residual = min(residual, float(self.max_response_tokens - generated))
        return max(1.0, residual)

    def group_residual(self, group: MissingGroup) -> float:
        """Expected remaining tokens of a group."""
        return sum(self.residual_tokens(g) for g in group.generated_tokens) or self.expected_tokens

    def split(self, view: GroupSplitView) -> tuple[int, ...]:
        """Ids whose predicted load is closest to the auxiliaries' share."""
        if not view.first and not self.rebalance:
            return ()
        if view.primary_replicas <= 0:
            return tuple(group.group_id for group in view.missing)
        residuals = {group.group_id: self.group_residual(group) for group in view.missing}
        total = sum(residuals.values())
        held = view.auxiliary_groups * total / len(view.missing)
        share = view.auxiliary_replicas / (view.primary_replicas + view.auxiliary_replicas)
        room = share * (total + held) - held
        limit = len(view.missing) if view.first else leave_one_each(view)
        chosen: list[int] = []
        for group in sorted(view.missing, key=lambda g: self._order(g, residuals[g.group_id])):
            load = residuals[group.group_id]
            if len(chosen) == limit or room <= 0:
                break
            if load <= 2.0 * room:
                chosen.append(group.group_id)
                room -= load
        return tuple(chosen)

    @staticmethod
    def _order(group: MissingGroup, residual: float) -> tuple[bool, float]:
        return group.running, (-residual / (1.0 + sum(group.generated_tokens)) if group.running else 0.0)
