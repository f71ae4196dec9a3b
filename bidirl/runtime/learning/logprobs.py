"""Log-probs of response tokens under a causal language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from bidirl.runtime.learning.batch import TrainSequence

_ROWS_PER_BLOCK = 256
"""Rows of logits that are raised to float32 at once: bounds the temporary at 256 x vocabulary x 4 bytes."""


def sequence_logprobs(
    model: Callable[..., Any],
    sequences: Sequence[TrainSequence],
    *,
    device: torch.device | str | None = None,
    temperature: float = 1.0,
    pad_token_id: int = 0,
) -> list[torch.Tensor]:
    """Log-prob of every response token, with gradient where gradients are enabled.

    The sequences run as one micro-batch, padded on the right. No attention mask is needed: under causal attention no
    token sees what follows it, so the padding cannot reach a response.

    Args:
        model: a causal language model of transformers, or an engine that wraps one; called with ``input_ids``,
            ``logits_to_keep`` and ``use_cache``.
        sequences: any number; those without a response are not run.
        device: where the model's inputs live; by default where its parameters do.
        temperature: of the sampling distribution that the log-probs belong to.
        pad_token_id: any valid token id.

    Returns:
        One tensor per sequence, shape ``(response_len,)``, float32 (float64 for a float64 model).
    """
    if device is None:
        device = next(model.parameters()).device if isinstance(model, torch.nn.Module) else torch.device("cpu")
    running = [sequence for sequence in sequences if sequence.response_len]
    if not running:
        return [torch.zeros(0, device=device) for _ in sequences]
    width = max(len(sequence.token_ids) for sequence in running)
    first = min(sequence.prompt_len for sequence in running) - 1
    input_ids = torch.full((len(running), width), pad_token_id, dtype=torch.long)
    for row, sequence in enumerate(running):
        input_ids[row, : len(sequence.token_ids)] = torch.as_tensor(sequence.token_ids)
    input_ids = input_ids.to(device)
    # The logits at position t predict token t + 1; `first` is the earliest that any sequence needs.
    logits = model(input_ids=input_ids, logits_to_keep=width - first, use_cache=False).logits
    rows = _response_index(running, first, logits.shape[1], device)
    targets = torch.cat([input_ids[row, s.prompt_len : len(s.token_ids)] for row, s in enumerate(running)])
    flat = _TokenLogprobs.apply(logits.flatten(0, 1), rows, targets, temperature)
    parts = iter(flat.split([sequence.response_len for sequence in running]))
    return [next(parts) if sequence.response_len else flat.new_zeros(0) for sequence in sequences]


def _response_index(
    sequences: Sequence[TrainSequence], first: int, kept: int, device: torch.device | str
) -> torch.Tensor:
    """Rows of the flattened ``(num_sequences x kept)`` logits that predict response tokens, sequence after sequence."""
    pieces = []
    for row, sequence in enumerate(sequences):
        start = row * kept + sequence.prompt_len - 1 - first
        pieces.append(torch.arange(start, start + sequence.response_len))
    return torch.cat(pieces).to(device)


class _TokenLogprobs(torch.autograd.Function):
    """``log_softmax(logits / temperature)[rows, targets]`` that keeps no copy of the logits in float32."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor, temperature: float
    ) -> torch.Tensor:
        wide = torch.promote_types(logits.dtype, torch.float32)
        result = torch.empty(len(rows), dtype=wide, device=logits.device)
        normalisers = torch.empty_like(result)
        for block in torch.arange(len(rows), device=logits.device).split(_ROWS_PER_BLOCK):
            scaled = logits[rows[block]].to(wide) / temperature
            normalisers[block] = torch.logsumexp(scaled, dim=-1)
            result[block] = scaled.gather(1, targets[block, None])[:, 0] - normalisers[block]
        ctx.save_for_backward(logits, rows, targets, normalisers)
        ctx.temperature = temperature
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, rows, targets, normalisers = ctx.saved_tensors
        result = torch.zeros_like(logits)
        for block in torch.arange(len(rows), device=logits.device).split(_ROWS_PER_BLOCK):
            outer = grads[0][block, None] / ctx.temperature
            scaled = logits[rows[block]].to(normalisers.dtype) / ctx.temperature
            local = torch.exp(scaled - normalisers[block, None]).mul_(-outer)
            local.scatter_add_(1, targets[block, None], outer)
            result[rows[block]] = local.to(logits.dtype)
        return result, None, None, None
