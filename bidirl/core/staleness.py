"""The staleness bound s = n + f as exact integer rules (invariant 3)."""

from __future__ import annotations

from fractions import Fraction


class StalenessBound:
    """Capacity and must-take rules that keep the bound without ever dropping a group.

    Let B be the batch size. A group may start under version v only while
    (started − dropped) < floor((v + s + 1)·B). Then at most (1 + f)·B groups that started under v or before are left
    when batch v + n is formed, so a batch can hold every group that the next step would find too old, and no group
    ever has to be dropped.
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

    def newest_must_take(self, version: int) -> int:
        """Groups whose oldest version is at most this must be in the batch that ``version`` trains."""
        return version - self.whole - 1

    def newest_quota(self, version: int) -> int:
        """Of the groups with exactly this oldest version, at most ``late_quota`` may be left for the next batch."""
        return version - self.whole

    def allows(self, staleness_of_groups: list[int]) -> bool:
        """Whether a batch with these staleness values keeps the bound."""
        late = sum(value == self.whole + 1 for value in staleness_of_groups)
        return all(value <= self.whole + 1 for value in staleness_of_groups) and late <= self.late_quota
