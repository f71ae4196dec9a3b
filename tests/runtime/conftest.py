"""A tiny random model on disk, a task, and one real cluster that all tests of a module share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bidirl.core.groups import Prompt


class ParityTask:
    """Prompts are arithmetic sequences of token ids; the reward is 1 when most response tokens are odd."""

    def prompt(self, group_id: int) -> Prompt:
        tokens = [2 + (5 * i + 3 * group_id) % 62 for i in range(12)]
        return Prompt(group_id, len(tokens), np.array(tokens, np.int32))

    def reward(self, prompt: Prompt, token_ids: np.ndarray) -> float:
        return float(np.mean(token_ids % 2) > 0.5)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    path = tmp_path_factory.mktemp("model") / "tiny"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=64,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=32,
                max_position_embeddings=256,
                tie_word_embeddings=True,
                eos_token_id=1,
                pad_token_id=0,
            )
        )
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as value:
        yield value
