"""Builders for learning tests: groups without an engine, and a model small enough for float64 oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bidirl.core.groups import Group, Prompt, Sample, VersionSpan

VOCABULARY = 11


def make_sample(
    length: int, reward: float | None, rng: np.random.Generator, finish_reason: str = "stop", **changes: Any
) -> Sample:
    """A finished sample with random tokens and behaviour log-probs around those of an untrained model."""
    fields: dict[str, Any] = {
        "spans": (VersionSpan(0, length),) if length else (),
        "token_ids": rng.integers(0, VOCABULARY, length).astype(np.int32),
        "logprobs": rng.normal(-2.4, 0.3, length).astype(np.float32),
        "finish_reason": finish_reason,
        "reward": reward,
    }
    return Sample(**(fields | changes))


def make_group(
    group_id: int, prompt_len: int, shape: list[tuple[int, float | None]], rng: np.random.Generator
) -> Group:
    """A group from ``(response length, reward)`` pairs."""
    tokens = rng.integers(0, VOCABULARY, prompt_len).astype(np.int32)
    return Group(Prompt(group_id, prompt_len, tokens), tuple(make_sample(n, r, rng) for n, r in shape), 0)


def tiny_qwen3(seed: int = 0) -> torch.nn.Module:
    """An untrained Qwen3 of a few thousand parameters in float64."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=64, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).double()
