"""Batches of solved sums for supervised learning."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from bidirl.runtime.language_models.chain_sum import chain_sum_task, worked_solution
from bidirl.runtime.language_models.config import TinyModelConfig

IGNORED = -100
"""Label of a position that is not learned."""

_BATCHES_PER_WINDOW = 16


def supervised_batches(tokenizer: Any, config: TinyModelConfig) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless ``(input_ids, labels)``, shape ``(batch_size, width)``; only the solution and its end are learned.

    Rows of one batch have similar lengths (sorted within a window of batches, which are then shuffled), so little of
    the work goes into padding.
    """
    task = chain_sum_task(config, config.seed)
    order = random.Random(config.seed)
    window = config.batch_size * _BATCHES_PER_WINDOW
    start = 0
    while True:
        rows = [_row(task, tokenizer, index) for index in range(start, start + window)]
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))
        cuts = list(range(0, window, config.batch_size))
        order.shuffle(cuts)
        for cut in cuts:
            yield _padded(rows[cut : cut + config.batch_size], tokenizer.pad_token_id)
        start += window


def _row(task: Any, tokenizer: Any, index: int) -> tuple[list[int], list[int]]:
    question = task.example(index).question
    prompt = tokenizer.encode(task.prompt_format.render(question, tokenizer))
    return prompt, [*tokenizer.encode(worked_solution(question)), tokenizer.eos_token_id]


def _padded(rows: list[tuple[list[int], list[int]]], pad_token_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(prompt) + len(solution) for prompt, solution in rows)
    input_ids = torch.full((len(rows), width), pad_token_id)
    labels = torch.full((len(rows), width), IGNORED)
    for i, (prompt, solution) in enumerate(rows):
        end = len(prompt) + len(solution)
        input_ids[i, :end] = torch.tensor(prompt + solution)
        labels[i, len(prompt) : end] = torch.tensor(solution)
    return input_ids, labels
