"""Calibrated models recover what generated their data, survive collinear columns, and respect stated coefficients."""

from __future__ import annotations

import json
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError, PolicyError
from bidirl.core.work import RolloutUsage, RolloutWork, TrainerWork
from bidirl.models.checked import CheckedModel
from bidirl.models.oracle import OracleRolloutModel, OracleTrainerModel
from bidirl.models.rollout import CalibratedRolloutModel
from bidirl.models.table import TableRolloutModel, TableTrainerModel
from bidirl.models.trainer import CalibratedTrainerModel
from bidirl.models.trainer_base import SubStageCost, list_schedule, overlap

TRUE_ROLLOUT = OracleRolloutModel(prefill_seconds=1e-4, step_seconds=0.02, token_seconds=1e-4, context_seconds=1e-8)
TRUE_TRAINER = OracleTrainerModel(
    old_logprob=SubStageCost(0.05, 0.1, 1.2),
    ref_logprob=SubStageCost(0.05, 0.1, 1.2),
    actor_update=SubStageCost(0.1, 0.3, 1.2),
)


def usage(rng: np.random.Generator) -> RolloutUsage:
    sequences, steps = float(rng.integers(1, 64)), float(rng.integers(100, 2000))
    decoded = sequences * steps * 0.6
    return RolloutUsage(300 * sequences, steps, decoded, decoded * float(rng.integers(300, 1500)))


@given(st.lists(st.integers(1, 5000), min_size=2, max_size=12), st.data())
def test_costs_of_a_cut_of_the_last_list_are_those_of_the_cut(sizes: list[int], data: st.DataObject) -> None:
    """Heads, tails, middles and other lists, in any order, before and after an observation."""
    model, chunks = CalibratedTrainerModel(), tuple((SubStage.ACTOR_UPDATE, size) for size in sizes)
    for _ in range(6):
        begin = data.draw(st.integers(0, len(chunks)))
        cut = chunks[begin : data.draw(st.integers(begin, len(chunks)))]
        assert model.predict(TrainerWork(cut), 1) == pytest.approx(sum(model.chunk_costs(cut)))
        if data.draw(st.booleans()):
            model.observe(TrainerWork(cut), float(sum(size for _, size in cut)))


def test_rollout_model_learns_to_its_noise() -> None:
    rng, model, errors = np.random.default_rng(0), CalibratedRolloutModel(), []
    for _ in range(80):
        window = usage(rng)
        seconds = TRUE_ROLLOUT.predict_usage(window) * rng.lognormal(0, 0.03)
        errors.append(abs(model.predict_usage(window) / seconds - 1))
        model.observe(window, seconds)
    assert np.median(errors[10:]) < 0.04
    assert all(value >= 0 for value in model.coefficients.values())


def test_rollout_model_with_collinear_columns() -> None:
    model = CalibratedRolloutModel()
    for steps in (100.0, 200.0, 150.0, 120.0) * 4:
        model.observe(RolloutUsage(steps, steps, 8 * steps, 800 * steps), 0.05 * steps)
    assert model.predict_usage(RolloutUsage(300, 300, 2400, 240000)) == pytest.approx(15.0, rel=0.01)


def test_rollout_model_follows_drift_and_shrugs_off_a_stall() -> None:
    rng, model = np.random.default_rng(1), CalibratedRolloutModel(decay=0.9)
    probe = usage(rng)
    for _ in range(40):
        window = usage(rng)
        model.observe(window, TRUE_ROLLOUT.predict_usage(window))
    model.observe(probe, 100 * TRUE_ROLLOUT.predict_usage(probe))
    assert model.predict_usage(probe) == pytest.approx(TRUE_ROLLOUT.predict_usage(probe), rel=0.1)
    for _ in range(80):
        window = usage(rng)
        model.observe(window, 2 * TRUE_ROLLOUT.predict_usage(window))
    assert model.predict_usage(probe) == pytest.approx(2 * TRUE_ROLLOUT.predict_usage(probe), rel=0.1)


def test_stated_coefficients() -> None:
    model = CalibratedRolloutModel(fixed={"step_seconds": 0.5})
    for _ in range(20):
        model.observe(RolloutUsage(0, 10, 100, 0), 10.0)
    assert model.coefficients["step_seconds"] == 0.5
    assert model.coefficients["token_seconds"] == pytest.approx(0.05)
    with pytest.raises(ConfigError, match=r"fixed\.step_second .*step_seconds"):
        CalibratedRolloutModel(fixed={"step_second": 1.0})
    with pytest.raises(ConfigError, match="at least 0"):
        CalibratedTrainerModel(fixed={"actor_update.base_seconds": -1.0})
    stated = {f"{stage}.{name}": 1.0 for stage in SubStage for name in ("base_seconds", "ktoken_seconds", "exponent")}
    assert CalibratedTrainerModel(fixed=stated).ready and not CalibratedTrainerModel().ready
    assert CalibratedTrainerModel(fixed=stated).predict_usage(TrainerWork(((SubStage.ACTOR_UPDATE, 3000),))) == 4.0


def test_trainer_model_learns_exponent_and_costs() -> None:
    rng, model, errors = np.random.default_rng(0), CalibratedTrainerModel(), []
    for i in range(240):
        work = TrainerWork(((list(SubStage)[i % 3], int(rng.integers(300, 9000))),))
        seconds = TRUE_TRAINER.predict_usage(work) * rng.lognormal(0, 0.02)
        errors.append(abs(model.predict_usage(work) / seconds - 1))
        model.observe(work, seconds)
    assert np.median(errors[30:]) < 0.03
    assert model.sub_stage_costs[SubStage.ACTOR_UPDATE].exponent in (1.1, 1.2, 1.3)


def test_trainer_model_with_equal_chunks_and_an_unseen_sub_stage() -> None:
    model = CalibratedTrainerModel()
    for _ in range(10):
        model.observe(TrainerWork(((SubStage.OLD_LOGPROB, 4000),)), 2.0)
    assert model.predict_usage(TrainerWork(((SubStage.OLD_LOGPROB, 4000),))) == pytest.approx(2.0, rel=1e-3)
    assert model.predict_usage(TrainerWork(((SubStage.ACTOR_UPDATE, 4000),))) == pytest.approx(6.0, rel=1e-3)


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_trainer_model_separates_communication(norm: float) -> None:
    truth = OracleTrainerModel(
        actor_update=SubStageCost(0.0, 1.0), comm_base_seconds=0.5, comm_byte_seconds=1e-9, overlap_norm=norm
    )
    model, rng = (
        CalibratedTrainerModel(overlap_norm=norm, fixed={"actor_update.exponent": 1.0}),
        np.random.default_rng(2),
    )
    for _ in range(150):
        chunk = TrainerWork(((SubStage.ACTOR_UPDATE, int(rng.integers(1000, 4000))),))
        model.observe(chunk, truth.predict_usage(chunk))
        window = TrainerWork(chunk.chunks, float(rng.integers(1, 20)) * 1e8)
        model.observe(window, truth.predict_usage(window))
    work = TrainerWork(((SubStage.ACTOR_UPDATE, 2000),) * 3, 1e9)
    assert model.predict(work, 1) == pytest.approx(truth.predict(work, 1), rel=0.05)


@given(st.lists(st.floats(0, 10), max_size=40), st.integers(1, 9))
def test_list_schedule_bounds(costs: list[float], replicas: int) -> None:
    loads = [0.0] * replicas
    for cost in costs:
        loads[loads.index(min(loads))] += cost
    makespan = list_schedule(costs, replicas)
    assert makespan == pytest.approx(max(loads))
    assert makespan <= sum(costs) + 1e-9 and makespan >= max(costs, default=0.0)


def test_overlap_norms() -> None:
    assert overlap(3.0, 4.0, 1.0) == 7.0 and overlap(3.0, 4.0, inf) == 4.0
    assert overlap(3.0, 4.0, 2.0) == pytest.approx(5.0) and overlap(3.0, 0.0, 2.0) == 3.0


def test_limits_of_predict() -> None:
    for work in (RolloutWork(0, 0, 0, 0, 0, 4), RolloutWork(4, 1, 1, 1, 1, 4)):
        assert TRUE_ROLLOUT.predict(work, 0) == (inf if work.num_sequences else 0.0)
    chunk = TrainerWork(((SubStage.ACTOR_UPDATE, 1),))
    assert TRUE_TRAINER.predict(chunk, 0) == inf and TRUE_TRAINER.predict(TrainerWork((), 1e9), 0) == 0.0


def test_tables_interpolate_extrapolate_and_adapt() -> None:
    model = TableRolloutModel(step_seconds={1: 0.01, 10: 0.10, 20: 0.20})
    assert model.predict_usage(RolloutUsage(0, 100, 1500, 0)) == pytest.approx(15.0)
    assert model.predict_usage(RolloutUsage(0, 100, 3000, 0)) == pytest.approx(30.0)
    for _ in range(200):
        model.observe(RolloutUsage(0, 100, 1000, 0), 20.0)
    assert model.scale == pytest.approx(2.0, rel=1e-3)
    trainer = TableTrainerModel(actor_update={1000: 1.0, 2000: 3.0})
    assert trainer.predict_usage(TrainerWork(((SubStage.ACTOR_UPDATE, 1500), (SubStage.ACTOR_UPDATE, 3000)))) == 7.0
    with pytest.raises(ConfigError, match="at least 2"):
        TableRolloutModel(step_seconds={1: 0.1})


@pytest.mark.parametrize("value", [nan, -1.0, inf])
def test_unusable_predictions_name_the_model(value: float) -> None:
    class Bad(OracleTrainerModel):
        def predict(self, work: TrainerWork, replicas: int) -> float:
            return value

    model = CheckedModel(inner=Bad(actor_update=SubStageCost(1.0)))
    with pytest.raises(PolicyError, match=r"Bad\.predict.*returned"):
        model.predict(TrainerWork(((SubStage.ACTOR_UPDATE, 1),)), 2)


def test_exceptions_name_the_model() -> None:
    class Bad(OracleRolloutModel):
        def predict(self, work: RolloutWork, replicas: int) -> float:
            raise KeyError("missing")

    with pytest.raises(PolicyError, match=r"Bad\.predict raised KeyError"):
        CheckedModel(inner=Bad(prefill_seconds=0, step_seconds=0)).predict(RolloutWork(1, 1, 1, 1, 1, 1), 1)


def test_parameters_restore_learning_too() -> None:
    rng, model, twin = np.random.default_rng(3), CalibratedRolloutModel(), CalibratedRolloutModel()
    for _ in range(12):
        window = usage(rng)
        model.observe(window, TRUE_ROLLOUT.predict_usage(window))
    twin.load_parameters(json.loads(json.dumps(model.parameters())))
    window = usage(rng)
    for each in (model, twin):
        each.observe(window, 7.0)
    assert twin.coefficients == model.coefficients
