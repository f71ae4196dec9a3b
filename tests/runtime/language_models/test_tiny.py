"""The tiny model: built, saved, opened again, grown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bidirl.core.errors import ConfigError
from bidirl.runtime.language_models import TinyModelConfig
from bidirl.runtime.language_models.chain_sum import CHARACTERS, chain_sum_task, worked_solution
from bidirl.runtime.language_models.grow import grow_tiny_model
from bidirl.runtime.language_models.loading import load_causal_lm, load_tokenizer
from bidirl.runtime.language_models.supervised import IGNORED, supervised_batches
from bidirl.runtime.language_models.tiny import build_tiny_model
from bidirl.runtime.language_models.tokenizer import character_tokenizer

SMALL = TinyModelConfig(
    hidden_size=32, num_layers=1, head_dim=16, max_terms=3, max_steps=6, batch_size=4, evaluate_every=3,
    num_evaluated=4, target_reward=0.9,
)  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(SMALL, tmp_path_factory.mktemp("models") / "small").output_dir


def test_worked_solutions_earn_the_full_reward_and_spread_in_length() -> None:
    task = chain_sum_task(TinyModelConfig(), seed=5, num_examples=500)
    lengths = []
    for index in range(200):
        example = task.example(index)
        solution = worked_solution(example.question)
        assert task.reward(example.payload, solution) == 1.0
        lengths.append(len(solution))
    assert min(lengths) < 8 and max(lengths) > 48


@pytest.mark.parametrize(
    ("question", "solution"), [("4 - 1 + 7", "4-1=3\n3+7=10"), ("1 - 9 - 0", "1-9=-8\n-8-0=-8"), ("5", "5")]
)
def test_worked_solution(question: str, solution: str) -> None:
    assert worked_solution(question) == solution


def test_the_tokenizer_round_trips_ascii_and_survives_the_rest(built: Path) -> None:
    tokenizer = load_tokenizer(str(built))
    assert len(tokenizer) == len(set(CHARACTERS)) + 3
    text = "4 - 1 =\n  It's {odd}, ok."
    ids = tokenizer.encode(text)
    assert len(ids) == len(text) and tokenizer.decode(ids) == text
    assert tokenizer.encode("é\t") == [tokenizer.unk_token_id] * 2
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == text


def test_building_is_deterministic_and_reports_progress(built: Path, tmp_path: Path) -> None:
    steps: list[int] = []
    torch.rand(3)
    report = build_tiny_model(SMALL, tmp_path, lambda step, loss, evaluation: steps.append(step))
    assert steps == [3, 6] and report.num_steps == 6
    first, second = load_causal_lm(str(built)), load_causal_lm(str(tmp_path))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert first.config.tie_word_embeddings and first.config.architectures == ["Qwen3ForCausalLM"]


def test_training_stops_at_the_target(tmp_path: Path) -> None:
    config = TinyModelConfig(**{**_fields(SMALL), "target_reward": 1e-9, "num_evaluated": 64, "max_steps": 300})
    assert build_tiny_model(config, tmp_path).num_steps < 300


def test_a_grown_model_computes_the_same(built: Path, tmp_path: Path) -> None:
    config = TinyModelConfig(hidden_size=96, num_layers=3, head_dim=16, num_evaluated=4)
    report = grow_tiny_model(built, config, tmp_path)
    small, large = load_causal_lm(str(built)), load_causal_lm(str(tmp_path))
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        a, b = (torch.log_softmax(model(input_ids=ids).logits, -1) for model in (small, large))
    torch.testing.assert_close(a, b, rtol=0, atol=2e-2)
    assert report.num_parameters > 10 * sum(p.numel() for p in small.parameters())
    large(input_ids=ids, labels=ids).loss.backward()
    assert all(p.grad is not None for p in large.parameters())
    assert large.model.layers[2].mlp.down_proj.weight.grad.abs().sum() > 0


def test_batches_learn_only_the_solution() -> None:
    tokenizer = character_tokenizer(CHARACTERS, 64)
    input_ids, labels = next(supervised_batches(tokenizer, SMALL))
    for row, wanted in zip(input_ids, labels, strict=True):
        prompt, solution = tokenizer.decode(row[wanted == IGNORED]), tokenizer.decode(row[wanted != IGNORED])
        assert worked_solution(prompt.split(" =\n")[0]) + "<eos>" == solution


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("hidden_size", {"hidden_size": 100}),
        ("head_dim", {"head_dim": 7}),
        ("target_reward", {"target_reward": 1.0}),
        ("max_terms", {"max_terms": 1}),
        ("num_layers", {"num_layers": 0}),
    ],
)
def test_wrong_settings_name_their_key(key: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: "):
        TinyModelConfig(**settings)


def test_growing_into_something_smaller_is_refused(built: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^intermediate_size: "):
        grow_tiny_model(built, TinyModelConfig(hidden_size=32, head_dim=16, intermediate_size=64), tmp_path)


def _fields(config: TinyModelConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}
