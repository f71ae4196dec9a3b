"""The tiny character-level Qwen3: built, warm-started by supervised learning to a measured reward, saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bidirl.runtime.language_models.chain_sum import CHARACTERS, chain_sum_task
from bidirl.runtime.language_models.config import TinyModelConfig
from bidirl.runtime.language_models.evaluation import Evaluation, evaluate
from bidirl.runtime.language_models.supervised import IGNORED, supervised_batches
from bidirl.runtime.language_models.tokenizer import character_tokenizer

Progress = Callable[[int, float, Evaluation], None]
"""Called after each measurement with the step, the training loss (nats per token) and the evaluation."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What :func:`build_tiny_model` did."""

    output_dir: Path
    num_parameters: int
    num_steps: int
    seconds: float
    evaluation: Evaluation


def build_tiny_model(config: TinyModelConfig, output_dir: str | Path, progress: Progress | None = None) -> BuildReport:
    """Train until the sampled reward reaches the target (or ``max_steps``), then save a Hugging Face directory.

    The same config gives the same weights on the same machine and number of threads.
    """
    start = time.monotonic()
    tokenizer = character_tokenizer(CHARACTERS, config.max_positions)
    model = new_model(config, tokenizer)
    result = None
    step = 0
    for step, loss in enumerate(_train(model, tokenizer, config), start=1):
        if step % config.evaluate_every and step != config.max_steps:
            continue
        result = measure(model, tokenizer, config)
        if progress is not None:
            progress(step, loss, result)
        if result.reward >= config.target_reward:
            break
    assert result is not None
    save_model(model, tokenizer, Path(output_dir))
    count = sum(parameter.numel() for parameter in model.parameters())
    return BuildReport(Path(output_dir), count, step, time.monotonic() - start, result)


def new_model(config: TinyModelConfig, tokenizer: Any) -> Any:
    """An untrained model for this tokenizer, float32, embeddings tied."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    heads = config.hidden_size // config.head_dim
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=config.hidden_size,
                intermediate_size=config.feed_forward_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=heads,
                num_key_value_heads=heads // 2,
                head_dim=config.head_dim,
                max_position_embeddings=config.max_positions,
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        ).float()


def measure(model: Any, tokenizer: Any, config: TinyModelConfig) -> Evaluation:
    """Reward on sums of the same kind from another seed, with room for the longest worked solution."""
    task = chain_sum_task(config, config.seed + 1)
    longest = config.max_terms * (3 * config.max_digits + 7)
    return evaluate(model, tokenizer, task, config.num_evaluated, config.seed, max_new_tokens=longest)


def save_model(model: Any, tokenizer: Any, output_dir: Path) -> None:
    """Write weights (safetensors), configuration and tokenizer."""
    output_dir.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)


def _train(model: Any, tokenizer: Any, config: TinyModelConfig) -> Iterator[float]:
    """Optimizer steps for ever; yields the loss of each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=0.01, betas=(0.9, 0.95))
    warm_up = 20
    batches = supervised_batches(tokenizer, config)
    for step in range(config.max_steps):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * min(1.0, (step + 1) / warm_up)
        input_ids, labels = next(batches)
        model.train()
        logits = model(input_ids=input_ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield float(loss.detach())
