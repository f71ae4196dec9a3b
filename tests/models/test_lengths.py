"""Length statistics: order statistics, residuals, and no bias towards what finishes early."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidirl.models.lengths import LengthStats

CAP = 4096


def stats(lengths: list[int]) -> LengthStats:
    found = LengthStats(max_response_tokens=CAP)
    for length in lengths:
        found.observe(length)
    return found


def test_unfinished_responses_remove_the_bias_of_early_finishers() -> None:
    rng = np.random.default_rng(0)
    lengths = np.minimum(CAP, np.exp(rng.normal(np.log(600), 0.75, 1000))).astype(int)
    now = 500  # everything started together: only what is short has finished
    finished, running = lengths[lengths <= now], lengths[lengths > now]
    found = stats([int(x) for x in finished])
    naive = found.mean_residual(0.0)
    count = len(running)
    generated = [now] * count + [0]
    work = found.rollout_work(generated, 0, True, 64)
    aware = work.remaining_tokens * (count + 1) - count * (CAP - now) / 2  # what is left for the fresh one
    true = float(lengths.mean())
    assert naive < 0.5 * true < aware
    assert abs(aware - true) < abs(naive - true) or aware > true  # the tail is unknown: half of the way to the cap


@given(st.lists(st.integers(1, CAP), min_size=1, max_size=60), st.integers(0, CAP), st.integers(1, 40))
def test_predictions_stay_within_the_cap(lengths: list[int], generated: int, count: int) -> None:
    work = stats(lengths).rollout_work([generated] * count + [0], 10.0, True, 64)
    assert 0.0 < work.remaining_tokens <= work.longest_tokens * (1 + 1e-9)
    assert work.longest_tokens <= CAP + 1


@given(st.lists(st.integers(1, CAP), min_size=2, max_size=60))
def test_without_unfinished_responses_it_is_the_empirical_distribution(lengths: list[int]) -> None:
    found = stats(lengths)
    assert found.mean_residual(0.0) == pytest.approx(np.mean(lengths))
    assert found.expected_longest(1) == pytest.approx(np.mean(lengths))
    assert found.expected_longest(10_000) == pytest.approx(max(lengths), rel=0.02)
