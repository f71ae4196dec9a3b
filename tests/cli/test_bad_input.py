"""What is wrong in a real job's config is one line naming the key, status 2, before anything starts."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from bidirl.cli.main import main
from tests.cli.conftest import write_job

pytest.importorskip("ray")
pytest.importorskip("transformers")
pytest.importorskip("reasoning_gym")

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"stalness": 1}, "unknown key 'stalness': did you mean 'staleness'"),
    "unknown nested key": ({"ray.max_modle_len": 96}, "max_modle_len"),
    "wrong type": ({"num_steps": "many"}, "num_steps"),
    "wrong nested type": ({"ray.learning_rate": "fast"}, "learning_rate"),
    "impossible value": ({"staleness": -1}, "staleness is -1"),
    "no such policy": ({"policy": "ModelGided"}, "policy"),
    "not a policy": ({"policy": "tests.cli.plugins.NotAPolicy"}, "policy"),
    "more devices than cores": (
        {"envelope": {"class_path": "FixedEnvelope", "init_args": {"rollpool_devices": 500, "trainpool_devices": 1}}},
        "cores_per_device: 501 devices",
    ),
    "pool that a layout does not divide": (
        {
            "envelope": {
                "class_path": "FixedEnvelope",
                "init_args": {"rollpool_devices": 3, "trainpool_devices": 2, "rollouter_layout_devices": 2},
            }
        },
        "not a multiple of rollouter_layout_devices 2",
    ),
    "no TrainPool": (
        {"envelope": {"class_path": "FixedEnvelope", "init_args": {"rollpool_devices": 1, "trainpool_devices": 0}}},
        "trainpool_devices is 0",
    ),
    "no such model": ({"ray.model": "nowhere/model"}, "model: nowhere/model"),
    "no such data set": (
        {"task": {"class_path": "ReasoningGymTask", "init_args": {"dataset": "chain_sums"}}},
        "chain_sum",
    ),
    "no such parameter": (
        {"task": {"class_path": "ReasoningGymTask", "init_args": {"dataset": "chain_sum", "parameters": {"terms": 2}}}},
        "terms",
    ),
    "no such prompt file": ({"task": {"class_path": "JsonlTask", "init_args": {"path": "no.jsonl"}}}, "no.jsonl"),
    "no room for a response": ({"ray.max_response_tokens": 96}, "max_response_tokens: 96 leaves no room"),
    "unknown dtype": ({"ray.rollout_dtype": "float8"}, "rollout_dtype"),
    "a fraction of a version in pinned order": ({"consumption": "pinned", "staleness": 0.5}, "staleness is 0.5"),
    "float16 that no checkpoint could hold": ({"ray.trainer_dtype": "float16"}, "trainer_dtype"),
    "a run that exists": ({"output_dir": "."}, "is not overwritten"),
}


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray must not be started by a config that is refused."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr("ray.init", refuse)


def refusal(tmp_path: Path, job: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that ``bidirl train`` says."""
    assert main(["train", str(write_job(tmp_path, job))]) == 2
    err = capsys.readouterr().err
    assert err.startswith("bidirl: ")
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_setting_is_named(
    case: str, tmp_path: Path, real_job: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    changes, expected = CASES[case]
    job = copy.deepcopy(real_job)
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        (job[section] if section else job)[name] = value
    assert expected in refusal(tmp_path, job, capsys)


def test_a_prompt_longer_than_the_context_is_named(
    tmp_path: Path, real_job: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "long " * 50}) + "\n")
    assert "max_model_len" in refusal(tmp_path, real_job, capsys)
    assert not (tmp_path / "run").exists()
