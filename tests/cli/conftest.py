"""A small model directory with a tokenizer, and a job that trains it for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture(scope="session")
def character_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained character-level Qwen3."""
    pytest.importorskip("transformers")
    from bidirl.runtime.language_models.chain_sum import CHARACTERS
    from bidirl.runtime.language_models.config import TinyModelConfig
    from bidirl.runtime.language_models.tiny import new_model, save_model
    from bidirl.runtime.language_models.tokenizer import character_tokenizer

    config = TinyModelConfig(hidden_size=64, num_layers=2)
    tokenizer = character_tokenizer(CHARACTERS, config.max_positions)
    path = tmp_path_factory.mktemp("models") / "characters"
    save_model(new_model(config, tokenizer), tokenizer, path)
    return path


@pytest.fixture
def real_job(tmp_path: Path, character_model: Path) -> dict[str, Any]:
    """A job of a few steps on two devices; the reward is for many vowels, which no prompt asks for."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"word {i}:"}) + "\n" for i in range(20)))
    return {
        "name": "real",
        "policy": "Opportunistic",
        "envelope": {"class_path": "FixedEnvelope", "init_args": {"rollpool_devices": 1, "trainpool_devices": 1}},
        "num_steps": 4,
        "groups_per_batch": 6,
        "group_size": 4,
        "staleness": 0.0,
        "max_tokens_per_chunk": 256,
        "calibration_steps": 1,
        "learning": {"aggregation": "token_mean"},
        "task": {
            "class_path": "JsonlTask",
            "init_args": {"path": str(prompts), "scorer": "tests.cli.plugins.many_vowels"},
        },
        "ray": {
            "model": str(character_model),
            "max_model_len": 96,
            "max_response_tokens": 48,
            "max_num_seqs": 8,
            "kv_cache_gib": 0.25,
            "object_store_gib": 0.5,
            "learning_rate": 1e-3,
        },
        "output_dir": str(tmp_path / "run"),
    }


def write_job(directory: Path, job: dict[str, Any]) -> Path:
    """The config file of a job."""
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path
