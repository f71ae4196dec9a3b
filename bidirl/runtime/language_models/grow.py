"""A wider and deeper model that computes what a small one computes.

Teaching 20M parameters chain sums from nothing takes long on a core. Instead the small model's weights become one
corner of the large one's, and every path from a new unit into the output starts at zero: same function (up to the
epsilon of the norms), full cost of computation, and all new weights can learn.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from bidirl.core.errors import ConfigError
from bidirl.runtime.language_models.config import TinyModelConfig
from bidirl.runtime.language_models.loading import load_causal_lm, load_tokenizer
from bidirl.runtime.language_models.tiny import BuildReport, measure, new_model, save_model


def grow_tiny_model(source_dir: str | Path, config: TinyModelConfig, output_dir: str | Path) -> BuildReport:
    """Write a model of ``config``'s size that starts with the abilities of the tiny model in ``source_dir``.

    Args:
        source_dir: written by :func:`~bidirl.runtime.language_models.tiny.build_tiny_model`.
        config: sizes at least the source's, the same ``head_dim``; the training settings are not used.
        output_dir: directory to write.

    Raises:
        ConfigError: naming the key, if a size is smaller than the source's.
    """
    start = time.monotonic()
    small, tokenizer = load_causal_lm(str(source_dir)), load_tokenizer(str(source_dir))
    _check_sizes(small.config, config)
    large = new_model(config, tokenizer)
    with torch.no_grad():
        _silence_new_units(large)
        _copy_corner(small, large)
    save_model(large, tokenizer, Path(output_dir))
    result = measure(large, tokenizer, config)
    count = sum(parameter.numel() for parameter in large.parameters())
    return BuildReport(Path(output_dir), count, 0, time.monotonic() - start, result)


def _check_sizes(small: Any, config: TinyModelConfig) -> None:
    if small.head_dim != config.head_dim:
        raise ConfigError(f"head_dim: {config.head_dim} differs from the source model's {small.head_dim}; use that")
    for key, mine, source in (
        ("hidden_size", config.hidden_size, small.hidden_size),
        ("num_layers", config.num_layers, small.num_hidden_layers),
        ("intermediate_size", config.feed_forward_size, small.intermediate_size),
    ):
        if mine < source:
            raise ConfigError(f"{key}: {mine} is smaller than the source model's {source}; choose at least that")


def _silence_new_units(large: Any) -> None:
    """Zero everything that writes into the residual stream; what reads from it keeps its random start."""
    large.get_input_embeddings().weight.zero_()
    for layer in large.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()


def _copy_corner(small: Any, large: Any) -> None:
    """Copy each weight of the small model into the leading rows and columns of the large one's."""
    width, wide = small.config.hidden_size, large.config.hidden_size
    targets = dict(large.named_parameters())
    for name, weight in small.named_parameters():
        corner = targets[name][tuple(slice(0, size) for size in weight.shape)]
        # The norm divides by the root mean square over all units, of which only `width` are not zero.
        scale = (width / wide) ** 0.5 if weight.ndim == 1 and len(weight) == width and "self_attn" not in name else 1.0
        corner.copy_(weight * scale)
