"""The GRPO loss of a chunk. Sums over chunks, in any cut and order, are the loss of the batch.

Per response token, with new log-prob x, proximal log-prob o, behaviour log-prob b, reference log-prob r, advantage A:

    ratio    = exp(x - o)                       o = b with proximal=behaviour
    policy   = -w · min(ratio · A, clip(ratio, 1 - clip_low, 1 + clip_high) · A)
    w        = min(exp(o - b), importance_cap)  1 with proximal=behaviour; no gradient
    kl       = exp(r - x) - (r - x) - 1         unbiased and never negative
    loss     = Σ weight · (policy + kl_coefficient · kl)

    weight   = 1 / num_tokens                              token_mean
             = 1 / (num_sequences · tokens of the response)  sequence_mean
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from bidirl.runtime.learning.batch import Denominators, TrainSequence
from bidirl.runtime.learning.config import GrpoConfig
from bidirl.runtime.learning.logprobs import sequence_logprobs

_MAX_LOG_RATIO = 20.0
"""Log-ratios are limited to ±20 before the exponential, so that a wild token cannot make the loss infinite."""

LogProbs = Sequence[torch.Tensor]


def actor_loss(
    model: Callable[..., Any],
    sequences: Sequence[TrainSequence],
    denominators: Denominators,
    config: GrpoConfig,
    old_logprobs: LogProbs | None = None,
    ref_logprobs: LogProbs | None = None,
    *,
    device: torch.device | str | None = None,
    temperature: float = 1.0,
    pad_token_id: int = 0,
) -> tuple[torch.Tensor, dict[str, float]]:
    """Loss of one chunk, already divided by the batch's global denominator: add up chunks, do not average.

    An engine that averages gradients over its N ranks needs the loss of each rank multiplied by N.

    Args:
        model: as for :func:`sequence_logprobs`.
        sequences: the chunk; may be empty, may hold empty responses.
        denominators: of the whole batch.
        config: see :class:`GrpoConfig`.
        old_logprobs: the trainer's log-probs before the update, one tensor per sequence; exactly with ``recomputed``.
        ref_logprobs: the reference model's, likewise; exactly with a KL coefficient above 0.
        device: as for :func:`sequence_logprobs`.
        temperature: as for :func:`sequence_logprobs`.
        pad_token_id: as for :func:`sequence_logprobs`.

    Returns:
        The loss, a scalar that is connected to the parameters unless there is nothing to train (then a plain 0), and
        the chunk's metric sums for :func:`~.statistics.step_metrics`.

    Raises:
        ValueError: if log-probs that the configuration needs are missing, or given without use.
    """
    _check_inputs("old_logprobs", old_logprobs, config.proximal == "recomputed", sequences)
    _check_inputs("ref_logprobs", ref_logprobs, config.kl_coefficient > 0, sequences)
    new = sequence_logprobs(model, sequences, device=device, temperature=temperature, pad_token_id=pad_token_id)
    kept = [i for i, sequence in enumerate(sequences) if sequence.num_trainable_tokens]
    if not kept:
        # Zero times the forward pass keeps every rank's backward alive: a rank without tokens must not hang the others.
        loss = sum((values.sum() * 0.0 for values in new), start=torch.zeros((), device=new[0].device if new else None))
        return loss, {"loss": 0.0, "num_tokens": 0.0}
    chosen = [sequences[i] for i in kept]
    masks = [torch.as_tensor(s.mask, device=new[0].device) for s in chosen]
    x = _gather(new, kept, masks)
    b = _gather([torch.as_tensor(s.behaviour_logprobs) for s in chosen], range(len(chosen)), masks).to(x)
    o = b if old_logprobs is None else _gather(old_logprobs, kept, masks).to(x)
    r = None if ref_logprobs is None else _gather(ref_logprobs, kept, masks).to(x)
    advantages, weights = _per_token(chosen, denominators, config, x)
    return _loss_and_metrics(config, x, o, b, r, advantages, weights)


def _loss_and_metrics(
    config: GrpoConfig,
    x: torch.Tensor,
    o: torch.Tensor,
    b: torch.Tensor,
    r: torch.Tensor | None,
    advantages: torch.Tensor,
    weights: torch.Tensor,
) -> tuple[torch.Tensor, dict[str, float]]:
    ratio = _bounded_exp(x - o.detach())
    clipped = ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    importance = torch.ones_like(x)
    if config.proximal == "recomputed":
        importance = _bounded_exp(o - b).detach()
        if config.importance_cap is not None:
            importance = importance.clamp(max=config.importance_cap)
    per_token = -importance * objective
    sums = {
        "ratio": ratio,
        "clip_low_fraction": ((ratio < 1.0 - config.clip_low) & (advantages < 0)).to(x),
        "clip_high_fraction": ((ratio > 1.0 + config.clip_high) & (advantages > 0)).to(x),
        "importance_weight": importance,
        "behaviour_kl": b - x,
        "negative_logprob": -x,
    }
    if r is not None:
        gap = (r.detach() - x).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
        sums["ref_kl"] = torch.exp(gap) - gap - 1.0
        per_token = per_token + config.kl_coefficient * sums["ref_kl"]
    loss = (weights * per_token).sum()
    metrics = {name: float(values.detach().double().sum()) for name, values in sums.items()}
    return loss, {**metrics, "loss": float(loss.detach()), "num_tokens": float(len(x))}


def _per_token(
    sequences: Sequence[TrainSequence], denominators: Denominators, config: GrpoConfig, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantage and aggregation weight of every trainable token."""
    counts = torch.tensor([s.num_trainable_tokens for s in sequences])
    advantages = torch.tensor([s.advantage for s in sequences], dtype=torch.float64)
    if config.aggregation == "token_mean":
        weights = torch.full((len(sequences),), 1.0 / denominators.num_tokens, dtype=torch.float64)
    else:
        weights = 1.0 / (denominators.num_sequences * counts.double())
    return advantages.repeat_interleave(counts).to(like), weights.repeat_interleave(counts).to(like)


def _gather(values: LogProbs, indices: Sequence[int], masks: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([values[i].to(mask.device)[mask] for i, mask in zip(indices, masks, strict=True)])


def _bounded_exp(log_ratio: torch.Tensor) -> torch.Tensor:
    return torch.exp(log_ratio.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO))


def _check_inputs(name: str, values: LogProbs | None, needed: bool, sequences: Sequence[TrainSequence]) -> None:
    if (values is not None) != needed:
        raise ValueError(f"{name} {'are needed' if needed else 'would be ignored'} under this configuration")
    if values is not None and [len(v) for v in values] != [s.response_len for s in sequences]:
        raise ValueError(f"{name} do not match the sequences: one tensor of response length each")
