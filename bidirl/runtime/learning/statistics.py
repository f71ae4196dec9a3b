"""Scalars about a batch for the step's row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bidirl.core.groups import Group


def batch_metrics(
    groups: Sequence[Group], advantages: Sequence[NDArray[np.float64]], num_masked_tokens: int
) -> dict[str, float]:
    """Rewards, lengths and what was left out of the loss.

    Args:
        groups: the batch.
        advantages: per group, NaN for samples without a score.
        num_masked_tokens: response tokens that are not in the loss.

    Returns:
        Names in the form ``topic/name``; lengths in tokens; means over samples. No entry for what is undefined (the
        reward of a batch in which nothing has a score).
    """
    samples = [sample for group in groups for sample in group.samples]
    scored = np.isfinite(np.concatenate(advantages)) if advantages else np.zeros(0, bool)
    rewards = np.array([s.reward for s, ok in zip(samples, scored, strict=True) if ok], dtype=np.float64)
    lengths = np.array([sample.num_tokens for sample in samples], dtype=np.float64)
    flat = [values for values in advantages if not np.any(values[np.isfinite(values)])]
    metrics = {
        "reward/num_zero_variance_filtered": float(len(flat)),
        "reward/num_unscored": float(len(samples) - len(rewards)),
        "response_length/num_empty": float(np.sum(lengths == 0)),
        "response_length/num_overlong": float(sum(sample.finish_reason == "length" for sample in samples)),
        "loss/num_masked_tokens": float(num_masked_tokens),
    }
    metrics |= _summary("reward", rewards) | _summary("response_length", lengths)
    return metrics


def step_metrics(chunk_metrics: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Means over the step's tokens from the sums that :func:`~.loss.actor_loss` returned per chunk, in chunk order.

    ``loss`` is a sum already divided by the batch's global denominator, so it is added up; everything else is a sum
    over tokens and is divided by their number.
    """
    sums: dict[str, float] = {}
    for metrics in chunk_metrics:
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + value
    num_tokens = sums.pop("num_tokens", 0.0)
    result = {"actor/loss": sums.pop("loss", 0.0), "actor/num_tokens": num_tokens}
    if num_tokens:
        result |= {f"actor/{name}": value / num_tokens for name, value in sums.items()}
    return result


def _summary(topic: str, values: NDArray[np.float64]) -> dict[str, float]:
    if len(values) == 0:
        return {}
    numbers = {"mean": values.mean(), "max": values.max(), "min": values.min()}
    return {f"{topic}/{name}": float(number) for name, number in numbers.items()}
