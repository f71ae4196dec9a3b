"""Prequential errors, switch costs and length statistics."""

from __future__ import annotations

import json
from math import isnan

import numpy as np
import pytest

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.core.work import RolloutUsage, SwitchCost
from bidirl.models.lengths import LengthStats
from bidirl.models.oracle import OracleRolloutModel, OracleTrainerModel
from bidirl.models.profiler import OnlineProfiler
from bidirl.models.rollout import CalibratedRolloutModel
from bidirl.models.switch_cost import SwitchCostModel
from bidirl.models.trainer_base import SubStageCost

T_ON_R, R_ON_T = Direction.TRAINER_ON_ROLLPOOL, Direction.ROLLOUTER_ON_TRAINPOOL
TRAINER = OracleTrainerModel(actor_update=SubStageCost(0.0, 1.0))


def test_errors_are_recorded_before_learning_and_only_when_ready() -> None:
    profiler = OnlineProfiler(rollout_model=CalibratedRolloutModel(min_observations=2), trainer_model=TRAINER)
    assert isnan(profiler.errors()["rollout"]["median"])
    window = RolloutUsage(0, 10, 10, 0)
    assert profiler.observe_rollout(window, 1.0) is None and profiler.observe_rollout(window, 1.0) is None
    assert profiler.observe_rollout(window, 2.0) == pytest.approx(0.5, rel=0.01)
    assert profiler.observe_chunks([(SubStage.ACTOR_UPDATE, 1000)], 0.8) == pytest.approx(0.25)
    assert profiler.observe_chunks([], 1.0) is None and profiler.observe_rollout(window, 0.0) is None
    assert profiler.errors()["train"] == pytest.approx({"median": 0.25, "p90": 0.25, "measured_over_predicted": 4 / 5})
    twin = OnlineProfiler(rollout_model=CalibratedRolloutModel(min_observations=2), trainer_model=TRAINER)
    twin.load_parameters(json.loads(json.dumps(profiler.parameters())))
    assert twin.rollout_model.predict_usage(window) == profiler.rollout_model.predict_usage(window)


def test_switch_costs_priors_then_decayed_means() -> None:
    model = SwitchCostModel(prior_in_seconds=3.0, prior_out_seconds=2.0, decay=0.5)
    assert model.cost(R_ON_T) == SwitchCost(3.0, 2.0, 0.0)
    assert model.cost(T_ON_R) == SwitchCost(3.0, 2.0, pytest.approx(0.6))
    model.observe(T_ON_R, in_seconds=6.0)
    assert model.cost(T_ON_R) == SwitchCost(6.0, 2.0, pytest.approx(1.2))  # C_grad prior follows C_in
    model.observe(T_ON_R, in_seconds=3.0, out_seconds=1.0, grad_seconds=0.5)
    assert model.cost(T_ON_R) == SwitchCost(4.0, 1.0, 0.5)
    assert model.measured(R_ON_T) == {"in": None, "out": None, "grad": None}
    twin = SwitchCostModel()
    twin.load_parameters(json.loads(json.dumps(model.parameters())))
    assert twin.cost(T_ON_R) == model.cost(T_ON_R)
    with pytest.raises(ConfigError, match="prior_in_seconds"):
        SwitchCostModel(prior_in_seconds=-1.0)


def filled(lengths: list[int], cap: int = 2048) -> LengthStats:
    stats = LengthStats(max_response_tokens=cap)
    for length in lengths:
        stats.observe(length)
    return stats


def test_length_statistics() -> None:
    stats = filled([100, 200, 300, 400])
    assert stats.mean_tokens == pytest.approx(250, rel=0.01)
    assert stats.second_moment == pytest.approx(75000, rel=0.01)
    assert stats.quantile_tokens(0.5) == 250
    assert stats.mean_residual(0) == 250 and stats.mean_residual(200) == 150
    assert stats.mean_residual(400) == (2048 - 400) / 2
    assert stats.expected_longest(1) == 250 and stats.expected_longest(10_000) == pytest.approx(400)
    assert LengthStats(max_response_tokens=1000).mean_tokens == 500


def test_order_statistic_against_sampling() -> None:
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(6, 0.8, 1000), 2048).astype(int)
    stats = filled(list(lengths))
    expected = np.mean([rng.choice(lengths, 64).max() for _ in range(400)])
    assert stats.expected_longest(64) == pytest.approx(expected, rel=0.02)
    generated = [int(g) for g in rng.integers(0, 800, 64)]
    draws = [max(int(rng.choice(lengths[lengths > g])) - g for g in generated) for _ in range(300)]
    work = stats.rollout_work(generated, 100, True, 16)
    assert work.longest_tokens == pytest.approx(np.mean(draws), rel=0.04)
    assert work.remaining_tokens == pytest.approx(np.mean([stats.mean_residual(g) for g in generated]), rel=0.03)


def test_rollout_work_counts_prefill_and_context() -> None:
    stats = filled([100] * 10)
    work = stats.rollout_work([0, 50], [20, 30], [False, True], 8)
    assert (work.num_sequences, work.context_tokens, work.prefill_tokens) == (2, 50.0, 20.0)
    assert work.remaining_tokens == pytest.approx(75.0) and 75.0 <= work.longest_tokens <= 102.0
    assert stats.rollout_work([], 10, False, 8).num_sequences == 0
    assert OracleRolloutModel(prefill_seconds=0, step_seconds=1).predict(work, 2) == pytest.approx(work.longest_tokens)
    twin = LengthStats(max_response_tokens=2048)
    twin.load_parameters(json.loads(json.dumps(stats.parameters())))
    assert twin.rollout_work([0, 50], [20, 30], [False, True], 8) == work
