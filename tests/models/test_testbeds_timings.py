"""Testbeds, and timings as plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.core.work import RolloutUsage, SwitchCost
from bidirl.models.estimator import Estimator
from bidirl.models.sim_calibration import load_timings, timings_from_estimates, timings_from_summary
from bidirl.models.sim_timings import RolloutTimings, SimTimings, timings_from_mapping
from bidirl.models.testbeds import TESTBEDS, find_testbed, roofline_table
from bidirl.models.trainer_base import SubStageCost


@pytest.mark.parametrize("name", TESTBEDS)
def test_testbeds_are_four_nodes_of_eight_and_say_simulated(name: str) -> None:
    bed = find_testbed(name)
    assert bed.num_devices == 32
    assert bed.with_nodes(2).num_devices == 16
    assert "extrapolated" in bed.with_nodes(128).source
    timings = bed.timings("qwen3-vl-4b")
    assert timings.source.startswith("simulated")
    assert timings.rollout.step_seconds > 0
    assert bed.kv_tokens("qwen3-vl-4b") > 100_000


def test_the_table_marks_extrapolations() -> None:
    rows = roofline_table(("a6000", "h100"), ("qwen3-vl-4b", "qwen3-8b"))
    marked = [str(row["trainer_on_rollpool"]).startswith("~") for row in rows]
    assert marked == [False, True, True, True]


def test_unknown_testbed_names_those_available() -> None:
    with pytest.raises(ConfigError, match="use one of a6000, h100"):
        find_testbed("tpu")


def test_timings_survive_json(tmp_path: Path) -> None:
    timings = find_testbed("a6000").timings("qwen3-vl-2b", trainer_devices=2)
    path = tmp_path / "timings.json"
    path.write_text(json.dumps(timings.to_mapping()))
    assert load_timings(str(path)) == timings


def test_keys_left_out_keep_the_base() -> None:
    base = SimTimings(export_seconds=3.0, rollout=RolloutTimings(step_seconds=1.0))
    timings = timings_from_mapping({"actor_update": {"base_seconds": 2.0}}, base)
    assert (timings.export_seconds, timings.rollout.step_seconds, timings.actor_update.base_seconds) == (3.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"exprot_seconds": 1}, "timings.exprot_seconds does not exist"),
        ({"rollout": {"step": 1}}, "timings.rollout.step does not exist"),
        ({"rollout": 3}, "timings.rollout is 3"),
        ({"export_seconds": -1.0}, "timings.export_seconds is -1.0"),
        ({"export_seconds": "1"}, "timings.export_seconds is '1'"),
        ({"rollout": {"step_seconds": float("nan")}}, "timings.rollout.step_seconds is nan"),
        ({"trainer_on_rollpool": {"in_seconds": 1.0}}, "timings.trainer_on_rollpool lacks a value"),
    ],
)
def test_bad_timings_name_the_key(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        timings_from_mapping(values)


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_timings(str(tmp_path / "no.json"))


def fitted(true: RolloutTimings) -> Estimator:
    """Stage models that have seen ``true``, and chunks of 0.1 s plus 0.5 s per 1,000 tokens."""
    estimator = Estimator.calibrated(100)
    for i in range(1, 60):
        usage = RolloutUsage(100.0 * (i % 7), 10.0 * i, 30.0 * i * (1 + i % 3), 9000.0 * i * (1 + i % 5))
        estimator.observe_rollout(usage, true.seconds(usage))
        estimator.observe_chunks([(SubStage.ACTOR_UPDATE, 1000 + 100 * i)], 0.1 + 0.5 * (1 + 0.1 * i))
    return estimator


def test_timings_from_what_a_run_measured() -> None:
    true = RolloutTimings(1e-4, 0.02, 1e-5, 3e-7)
    estimator = fitted(true)
    estimator.observe_switch(Direction.TRAINER_ON_ROLLPOOL, in_seconds=2.0, out_seconds=3.0)
    parameters = json.loads(json.dumps(dict(estimator.parameters())))
    timings = timings_from_estimates(parameters, SimTimings(export_seconds=7.0))
    assert timings.rollout.step_seconds == pytest.approx(true.step_seconds, rel=1e-2)
    assert timings.chunk_seconds(SubStage.ACTOR_UPDATE, 4000) == pytest.approx(2.1, rel=1e-2)
    assert timings.trainer_on_rollpool == SwitchCost(2.0, 3.0, 0.0)
    assert timings.rollouter_on_trainpool == SwitchCost(0.0, 0.0)
    assert timings.export_seconds == 7.0
    with pytest.raises(ConfigError, match="calibrated"):
        timings_from_estimates({})


def test_chunk_cost_is_the_formula() -> None:
    timings = SimTimings(old_logprob=SubStageCost(0.5, 2.0, 1.5))
    assert timings.chunk_seconds(SubStage.OLD_LOGPROB, 4000) == 0.5 + 2.0 * 4.0**1.5


def test_timings_from_a_summary_need_estimates() -> None:
    with pytest.raises(ConfigError, match="calibrated"):
        timings_from_summary({"verb_seconds": {"export_weights": {"mean": 2.0, "count": 3}}})


def test_a_summary_calibrates_to_the_mean_and_a_file_may_be_a_summary(tmp_path: Path) -> None:
    estimator = fitted(RolloutTimings(0.001, 0.02, 0.003, 1e-6))
    errors = {"rollout": {"measured_over_predicted": 1.5}, "train": {"measured_over_predicted": 2.0}}
    summary = {"world": "ray", "estimates": dict(estimator.parameters()), "stage_model_error": errors}
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(summary))
    timings = load_timings(str(path))
    assert timings.rollout.step_seconds == pytest.approx(0.03, rel=1e-2)
    assert timings.chunk_seconds(SubStage.ACTOR_UPDATE, 4000) == pytest.approx(4.2, rel=1e-2)
