"""Eq. (6), rebalancing, residual lengths, lazy pulls and the joint tail."""

from __future__ import annotations

from fractions import Fraction
from math import floor

from hypothesis import given
from hypothesis import strategies as st

from bidirl.core.chunks import SubStage
from bidirl.core.opportunity import GroupSplitView, MissingGroup, PullView
from bidirl.core.work import TrainerWork
from bidirl.models.oracle import OracleTrainerModel
from bidirl.models.trainer_base import SubStageCost
from bidirl.policies.chunk_rules import JointTail, LazyPull
from bidirl.policies.group_rules import capacity_share
from bidirl.policies.splitters import CapacitySplit, ResidualLengthSplit
from bidirl.testing_views import ReadOnlyRolloutModel

MODEL = OracleTrainerModel(actor_update=SubStageCost(0.0, 1.0))


def groups_view(
    generated: list[int | None], primaries: int, auxiliaries: int, held: int = 0, first: bool = True
) -> GroupSplitView:
    """One group per entry: its generated tokens per sample, ``None`` while pending."""
    missing = tuple(MissingGroup(i, g is not None, 2, (g or 0, g or 0)) for i, g in enumerate(generated))
    return GroupSplitView(missing, primaries, auxiliaries, held, first, ReadOnlyRolloutModel())


def pull(
    chunks: int, primary: bool, own: int = 1, other: int = 1, overhead: float = 0.0, busy: float = 0.0
) -> PullView:
    queued = TrainerWork(((SubStage.ACTOR_UPDATE, 5000),) * chunks)
    return PullView(queued, primary, own, other, overhead, busy, MODEL)


counts = st.integers(0, 64)
generated = st.lists(st.none() | st.integers(0, 2000), max_size=60)


@given(st.integers(0, 10_000), counts, counts)
def test_equation_6_conserves_groups(groups: int, primaries: int, auxiliaries: int) -> None:
    share = capacity_share(groups, primaries, auxiliaries)
    assert 0 <= share <= groups
    if primaries + auxiliaries:
        exact = Fraction(auxiliaries * groups, primaries + auxiliaries)
        assert share == floor(exact + Fraction(1, 2))
    if primaries == 0 and auxiliaries:
        assert share == groups


@given(generated, counts, counts, st.booleans(), counts)
def test_splits_partition_the_missing(
    tokens: list[int | None], primaries: int, auxiliaries: int, first: bool, held: int
) -> None:
    view = groups_view(tokens, primaries, auxiliaries, held, first)
    for splitter in (CapacitySplit(), ResidualLengthSplit(max_response_tokens=2048)):
        chosen = splitter.split_groups(view)
        assert len(set(chosen)) == len(chosen) and set(chosen) <= set(range(len(tokens)))
    if first and not held:
        assert len(CapacitySplit().split_groups(view)) == capacity_share(len(tokens), primaries, auxiliaries)


def test_pending_first_then_least_generated() -> None:
    view = groups_view([50, None, 10, None, 30], 1, 4)
    assert CapacitySplit().split_groups(view) == (1, 3, 2, 4)


def test_rebalancing_never_takes_a_primary_its_only_group() -> None:
    view = groups_view([50], 1, 1, first=False)
    assert CapacitySplit().split_groups(view) == () and ResidualLengthSplit().split_groups(view) == ()
    assert CapacitySplit().split_groups(groups_view([50, 20], 1, 1, first=False)) == (1,)
    assert CapacitySplit(rebalance=False).split_groups(groups_view([50, None], 1, 1, first=False)) == ()


def test_residual_lengths_equal_equation_6_when_alike_and_move_less_when_not() -> None:
    alike = groups_view([None] * 8, 1, 3)
    assert ResidualLengthSplit().split_groups(alike) == CapacitySplit().split_groups(alike)
    nearly_done = groups_view([500] * 7 + [0], 1, 1)  # one fresh group outweighs seven that end soon
    assert ResidualLengthSplit(expected_tokens=512).split_groups(nearly_done)[0] == 7
    assert len(ResidualLengthSplit(expected_tokens=512).split_groups(nearly_done)) < 4
    assert ResidualLengthSplit().split_groups(groups_view([5, None, 7], 0, 2)) == (0, 1, 2)


def test_lazy_pull() -> None:
    assert LazyPull().pull(pull(9, True, own=4)) == 4
    assert LazyPull(max_chunks=2).pull(pull(9, True, own=4)) == 2
    assert LazyPull().pull(pull(3, False, own=4)) == 3


def test_joint_tail_weighs_the_overhead() -> None:
    assert JointTail().pull(pull(1, False, overhead=1.0)) == 0  # 6 s against an idle primary's 5 s
    assert JointTail().pull(pull(1, False, overhead=1.0, busy=3.0)) == 1  # 6 s against 8 s
    assert JointTail().pull(pull(1, False)) == 0 and JointTail().pull(pull(1, True)) == 1  # ties: primaries
    assert JointTail().pull(pull(9, False, overhead=100.0)) == 1  # before the tail window
    assert JointTail().pull(pull(2, True, other=0)) == 1
    assert CapacitySplit().pull_chunks(pull(0, True)) == 0


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4), st.floats(0, 20), st.floats(0, 20))
def test_joint_tail_cuts_are_optimal(chunks: int, own: int, other: int, overhead: float, busy: float) -> None:
    view = pull(chunks, False, own, other, overhead, busy)
    taken = JointTail(max_chunks=chunks, tail_rounds=100).pull(view)
    ends = [JointTail._end_seconds(view, k) for k in range(chunks + 1)]
    assert ends[taken] == min(ends)
