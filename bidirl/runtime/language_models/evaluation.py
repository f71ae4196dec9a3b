"""Mean reward of a model on a task, sampled at temperature 1 with transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from bidirl.runtime.tasks import Task

_CORRECT = 0.99


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One measurement.

    Attributes:
        reward: mean over samples.
        solved: share of samples with (almost) full reward.
        response_lengths: tokens of each response, the end-of-sequence token included.
        examples: the first few ``(prompt text, response text, reward)``.
    """

    reward: float
    solved: float
    response_lengths: tuple[int, ...]
    examples: tuple[tuple[str, str, float], ...]


@torch.no_grad()
def evaluate(
    model: Any, tokenizer: Any, task: Task, num_samples: int, seed: int = 0, max_new_tokens: int = 128
) -> Evaluation:
    """One sample for each of the first ``num_samples`` examples of the task.

    The sampling has its own seeded stream; the global one is left as it was.
    """
    model.eval()
    questions = [task.example(i) for i in range(num_samples)]
    texts = [task.prompt_format.render(example.question, tokenizer) for example in questions]
    encoded = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt", return_token_type_ids=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        output = model.generate(
            **encoded,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=max_new_tokens,
            pad_token_id=tokenizer.pad_token_id,
        )[:, encoded["input_ids"].shape[1] :]
    lengths = [_length(row.tolist(), tokenizer.eos_token_id) for row in output]
    responses = [tokenizer.decode(row[:n], skip_special_tokens=True) for row, n in zip(output, lengths, strict=True)]
    rewards = [task.reward(e.payload, text) for e, text in zip(questions, responses, strict=True)]
    return Evaluation(
        reward=sum(rewards) / len(rewards),
        solved=sum(reward >= _CORRECT for reward in rewards) / len(rewards),
        response_lengths=tuple(lengths),
        examples=tuple(zip(texts, responses, rewards, strict=True))[:4],
    )


def _length(token_ids: list[int], eos_token_id: int) -> int:
    return token_ids.index(eos_token_id) + 1 if eos_token_id in token_ids else len(token_ids)
