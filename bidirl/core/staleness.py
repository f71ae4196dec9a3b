"""The staleness bound s = n + f as exact integer rules (invariant 3)."""

from __future__ import annotations

from fractions import Fraction


class StalenessBound:
    """Capacity and must-take rules that keep the bound without ever dropping a group.

    Let B be the batch size and q = floor(f·B). A group may start under version v only while
    (started − dropped) < (v + n + 1)·B + q. A group of oldest version v must be consumed by step v + n; q of a batch
    may come one step later. After the batch of version k was taken, at most j·B + q groups of oldest version k + j − n
    or older may be left, for j from 0 to n (and none older than k − n): taking the oldest first then meets every
    deadline, so no group ever has to be dropped. The capacity rule is the case j = n.
    """

    def __init__(self, staleness: float, groups_per_batch: int) -> None:
        exact = Fraction(staleness).limit_denominator(1_000_000)
        self.groups_per_batch = groups_per_batch
        self.whole = exact.numerator // exact.denominator
        self.late_quota = int((exact - self.whole) * groups_per_batch)
        """floor(f·B): groups of one batch that may have staleness n + 1."""

    def capacity(self, version: int) -> int:
        """Groups that may have been started, dropped ones not counted, while weights of ``version`` generate."""
        return (version + self.whole + 1) * self.groups_per_batch + self.late_quota

    def last_oldest(self, version: int, ahead: int) -> int:
        """Groups of this oldest version or older are due by step ``version + ahead`` (``ahead`` = −1: overdue)."""
        return version + ahead - self.whole

    def may_be_left(self, ahead: int) -> int:
        """How many of those may be left after the batch of ``version``."""
        return ahead * self.groups_per_batch + self.late_quota if ahead >= 0 else 0

    def allows(self, staleness_of_groups: list[int]) -> bool:
        """Whether a batch with these staleness values keeps the bound."""
        late = sum(value == self.whole + 1 for value in staleness_of_groups)
        return all(value <= self.whole + 1 for value in staleness_of_groups) and late <= self.late_quota
