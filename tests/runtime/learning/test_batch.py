"""Advantages, masks, denominators and counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidirl.core.errors import InvariantError
from bidirl.core.groups import Group, Prompt
from bidirl.runtime.learning import GrpoConfig, prepare_batch
from bidirl.runtime.learning.advantages import group_advantages
from tests.runtime.learning.helpers import make_group, make_sample

RNG = np.random.default_rng(0)
finite = st.floats(-1e6, 1e6)
sized = finite.filter(lambda value: value == 0 or abs(value) > 1e-3)


@given(finite, st.integers(1, 9), st.booleans())
def test_constant_rewards_give_exactly_zero(reward: float, count: int, normalise: bool) -> None:
    assert np.array_equal(group_advantages([reward] * count, normalise), np.zeros(count))


def test_rounding_in_the_mean_does_not_make_an_advantage() -> None:
    assert np.std([0.1] * 3) > 0  # the trap
    assert np.array_equal(group_advantages([0.1] * 3, True), np.zeros(3))


@given(st.lists(sized, min_size=2, max_size=8).filter(lambda rewards: len(set(rewards)) > 1))
def test_advantages_are_centred_and_standardised(rewards: list[float]) -> None:
    values = group_advantages(rewards, True)
    assert np.all(np.isfinite(values))
    assert values.sum() == pytest.approx(0, abs=1e-6)
    assert np.std(values, ddof=1) == pytest.approx(1, rel=1e-6)
    plain = group_advantages(rewards, False)
    assert plain == pytest.approx(np.array(rewards) - np.mean(rewards), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("rewards", [[0.0, 1e-300], [1e300, -1e300], [0.0, 5e-324]])
def test_extreme_rewards_stay_finite(rewards: list[float]) -> None:
    assert np.all(np.isfinite(group_advantages(rewards, True)))


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf")])
def test_an_unscored_sample_is_out_of_statistics_and_loss(missing: float | None) -> None:
    batch = prepare_batch([make_group(0, 3, [(4, 1.0), (5, missing), (6, 0.0)], RNG)], GrpoConfig(normalise_std=False))
    assert [s.advantage for s in batch.sequences[0]] == [0.5, 0.0, -0.5]
    assert [s.num_trainable_tokens for s in batch.sequences[0]] == [4, 0, 6]
    assert batch.metrics["reward/num_unscored"] == 1
    assert batch.denominators.num_tokens == 10
    assert batch.denominators.num_sequences == 2


def test_an_empty_response_keeps_its_own_reward_and_shifts_nobody() -> None:
    batch = prepare_batch([make_group(0, 3, [(0, 0.0), (2, 1.0), (3, 0.5)], RNG)], GrpoConfig(normalise_std=False))
    assert [s.advantage for s in batch.sequences[0]] == [-0.5, 0.5, 0.0]
    assert [s.response_len for s in batch.sequences[0]] == [0, 2, 3]
    assert batch.denominators.num_sequences == 2
    assert batch.metrics["response_length/num_empty"] == 1


def test_non_finite_and_missing_logprobs_are_masked_and_counted() -> None:
    broken = make_sample(3, 1.0, RNG, logprobs=np.array([-1, np.nan, -np.inf], np.float32))
    missing = make_sample(4, 0.0, RNG, logprobs=None)
    group = Group(Prompt(0, 2, np.array([1, 2], np.int32)), (broken, missing), 0)
    batch = prepare_batch([group], GrpoConfig())
    assert batch.sequences[0][0].mask.tolist() == [True, False, False]
    assert batch.sequences[0][0].behaviour_logprobs.tolist() == [-1, 0, 0]
    assert not batch.sequences[0][1].mask.any()
    assert batch.metrics["loss/num_masked_tokens"] == 6
    assert batch.num_trainable_tokens == 1


@pytest.mark.parametrize("shape", [[(3, 1.0)], [(3, 0.5), (4, 0.5)], [(0, 1.0), (0, 0.0)], [(3, None), (2, None)]])
def test_a_degenerate_batch_has_no_trainable_token(shape: list[tuple[int, float | None]]) -> None:
    batch = prepare_batch([make_group(0, 2, shape, RNG)], GrpoConfig())
    assert batch.num_trainable_tokens == 0
    assert all(np.isfinite(value) for value in batch.metrics.values())


def test_kl_makes_zero_advantage_trainable() -> None:
    groups = [make_group(0, 2, [(3, 1.0), (4, 1.0)], RNG)]
    assert prepare_batch(groups, GrpoConfig(kl_coefficient=0.1)).num_trainable_tokens == 7
    assert prepare_batch(groups, GrpoConfig()).metrics["reward/num_zero_variance_filtered"] == 1


def test_an_empty_batch_is_not_an_error() -> None:
    batch = prepare_batch([], GrpoConfig())
    assert (batch.num_trainable_tokens, batch.denominators.num_tokens) == (0, 0)


def test_overlong_responses_can_be_masked_and_still_count_as_peers() -> None:
    samples = (make_sample(3, 1.0, RNG), make_sample(9, 0.0, RNG, finish_reason="length"))
    group = Group(Prompt(0, 1, np.array([1], np.int32)), samples, 0)
    batch = prepare_batch([group], GrpoConfig(overlong="mask", normalise_std=False))
    assert [(s.advantage, s.num_trainable_tokens) for s in batch.sequences[0]] == [(0.5, 3), (-0.5, 0)]
    assert batch.metrics["response_length/num_overlong"] == 1


def test_unequal_lengths_break_invariant_2() -> None:
    sample = make_sample(3, 1.0, RNG, logprobs=np.zeros(2, np.float32))
    with pytest.raises(InvariantError, match="invariant 2"):
        prepare_batch([Group(Prompt(0, 1, np.array([1], np.int32)), (sample,), 0)], GrpoConfig())


def test_metrics_name_rewards_and_lengths() -> None:
    metrics = prepare_batch([make_group(0, 2, [(3, 1.0), (5, 0.0)], RNG)], GrpoConfig()).metrics
    assert metrics["reward/mean"] == 0.5
    assert [metrics[f"response_length/{kind}"] for kind in ("mean", "max", "min")] == [4, 5, 3]
    assert metrics["reward/num_zero_variance_filtered"] == 0
