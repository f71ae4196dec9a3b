"""Invariant 3: the capacity and must-take rules keep the bound and never need a drop, whatever finishes when."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidirl.core.buffer import RolloutBuffer
from bidirl.core.errors import InvariantError
from bidirl.core.groups import Group, Prompt, new_group
from bidirl.core.staleness import StalenessBound


def finished(group: Group, version: int) -> Group:
    """The group with one finished token in each sample, generated under ``version``."""
    samples = tuple(sample.extended(version, 1, finish_reason="stop") for sample in group.samples)
    return Group(group.prompt, samples, group.started_version)


@given(
    staleness=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0, 1.5, 2.0, 3.75]),
    size=st.integers(1, 9),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_any_completion_order_keeps_the_bound(staleness: float, size: int, data: st.DataObject) -> None:
    """Groups start as early as allowed, finish in any order: every batch keeps the bound, and none is ever stuck."""
    bound = StalenessBound(staleness, size)
    buffer = RolloutBuffer(bound, pinned=False)
    running: list[Group] = []
    started = 0
    for version in range(6):
        while True:
            while started < bound.capacity(version):
                group = new_group(Prompt(started, 1), 1, version)
                buffer.issue(group)
                running.append(group)
                started += 1
            batch = buffer.take_batch(version)
            if batch is not None:
                break
            assert running, "nothing runs and the batch cannot be formed: the rules deadlock"
            group = running.pop(data.draw(st.integers(0, len(running) - 1)))
            buffer.finish(finished(group, group.started_version))
        ages = [version - group.oldest_version for group in batch]
        assert len(batch) == size
        assert max(ages) <= bound.whole + (1 if bound.late_quota else 0)
        assert sum(age > bound.whole for age in ages) <= bound.late_quota


@pytest.mark.parametrize(
    ("staleness", "size", "whole", "quota"),
    [(0, 8, 0, 0), (0.1, 10, 0, 1), (0.3, 10, 0, 3), (1, 8, 1, 0), (1.5, 4, 1, 2), (0.1, 9, 0, 0), (0.7, 10, 0, 7)],
)
def test_fractional_bounds_are_exact(staleness: float, size: int, whole: int, quota: int) -> None:
    """floor(f·B) in exact arithmetic: 0.7 · 10 is 7, not 6."""
    bound = StalenessBound(staleness, size)
    assert (bound.whole, bound.late_quota) == (whole, quota)
    assert bound.capacity(0) == (whole + 1) * size + quota


def test_an_old_group_is_waited_for() -> None:
    """With s = 0 a later group cannot overtake; with s = 1 it can, once."""
    buffer = RolloutBuffer(StalenessBound(1.0, 1), pinned=False)
    groups = [new_group(Prompt(i, 1), 1, 0) for i in range(2)]
    for group in groups:
        buffer.issue(group)
    buffer.finish(finished(groups[1], 0))
    batch = buffer.take_batch(0)
    assert batch is not None
    assert batch[0].group_id == 1
    buffer.issue(new_group(Prompt(2, 1), 1, 1))
    buffer.finish(finished(new_group(Prompt(2, 1), 1, 1), 1))
    assert buffer.take_batch(1) is None
    assert buffer.missing_ids(1) == (0,)


def test_pinned_consumption_takes_groups_in_order() -> None:
    """Finishing out of order changes nothing about the batches."""
    buffer = RolloutBuffer(StalenessBound(0.0, 2), pinned=True)
    groups = [new_group(Prompt(i, 1), 1, 0) for i in range(3)]
    for group in groups:
        buffer.issue(group)
    buffer.finish(finished(groups[2], 0))
    buffer.finish(finished(groups[1], 0))
    assert buffer.take_batch(0) is None
    assert buffer.missing_ids(0) == (0,)
    buffer.finish(finished(groups[0], 0))
    assert [group.group_id for group in buffer.take_batch(0) or ()] == [0, 1]


def test_a_group_cannot_finish_twice() -> None:
    """Duplicated completions are refused."""
    buffer = RolloutBuffer(StalenessBound(0.0, 2), pinned=False)
    group = new_group(Prompt(0, 1), 1, 0)
    buffer.issue(group)
    buffer.finish(finished(group, 0))
    with pytest.raises(InvariantError, match="invariant 1"):
        buffer.finish(finished(group, 0))
