"""Sampling inside vLLM by each sample's own random stream.

The engine runs greedy decoding; this processor moves the maximum to the token that the stream picks by inverting the
cumulative distribution. One uniform number per row and step, so it costs two passes over the logits and no hashing of
the vocabulary. Every row is computed by itself: what a sample draws does not depend on its neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from bidirl.runtime.ray.random_stream import uniforms

KEY = "bidirl_key"
START = "bidirl_start"

_BLOCK = 256

_Stream = tuple[int, int, list[int]]
"""Key, tokens of the response that were generated before this request, the request's growing output list."""


class StreamSampler(LogitsProcessor):
    """Rows whose request carries a key are sampled by it; other rows keep their logits."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._streams: dict[int, _Stream] = {}

    def is_argmax_invariant(self) -> bool:
        """False: choosing the maximum is the whole point."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests as they enter, leave and move."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._streams.pop(index, None)
        for index, params, _, output_ids in batch_update.added:
            extra = params.extra_args or {}
            if KEY in extra:
                self._streams[index] = (int(extra[KEY]), int(extra[START]), output_ids)
            else:
                self._streams.pop(index, None)
        for source, target, kind in batch_update.moved:
            first, second = self._streams.pop(source, None), self._streams.pop(target, None)
            if first is not None:
                self._streams[target] = first
            if second is not None and kind is MoveDirectionality.SWAP:
                self._streams[source] = second

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Raise the chosen token of every keyed row to infinity."""
        rows = [row for row in self._streams if row < logits.shape[0]]
        if not rows:
            return logits
        streams = [self._streams[row] for row in rows]
        keys = np.array([key for key, _, _ in streams], np.uint64)
        positions = np.array([start + len(output) for _, start, output in streams], np.uint64)
        draws = torch.from_numpy(uniforms(keys, positions)).to(logits.device)
        whole = rows == list(range(logits.shape[0]))
        chosen = choose(logits if whole else logits[rows], draws)
        logits[torch.tensor(rows, device=logits.device), chosen] = torch.inf
        return logits


def choose(logits: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Token per row at which the cumulative probability passes the row's draw.

    Probabilities are summed in blocks first: only the block that holds the answer needs its running sum.

    Args:
        logits: shape ``(rows, vocabulary)``, float32.
        draws: shape ``(rows,)``, float64, in (0, 1).
    """
    weights = (logits - logits.amax(dim=-1, keepdim=True)).exp_()
    whole = weights.shape[1] // _BLOCK * _BLOCK
    blocks = weights[:, :whole].unflatten(1, (-1, _BLOCK)).sum(dim=-1)
    blocks = torch.cat([blocks, weights[:, whole:].sum(dim=-1, keepdim=True)], dim=1).double()
    block, fraction = _invert(blocks, draws)
    columns = block[:, None] * _BLOCK + torch.arange(_BLOCK, device=logits.device)
    inside = weights.gather(1, columns.clamp(max=weights.shape[1] - 1)).double()
    offset, _ = _invert(inside.masked_fill_(columns >= weights.shape[1], 0.0), fraction)
    return (block * _BLOCK + offset).clamp(max=weights.shape[1] - 1)


def _invert(weights: torch.Tensor, draws: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Per row the index at which the running sum passes ``draws`` of the total, and how far into that entry it lies."""
    sums = weights.cumsum(dim=-1)
    targets = (draws * sums[:, -1])[:, None]
    index = torch.searchsorted(sums, targets, right=True).clamp(max=weights.shape[1] - 1)
    chosen = weights.gather(1, index)
    fraction = (targets - (sums.gather(1, index) - chosen)) / chosen
    return index[:, 0], fraction[:, 0].clamp(0.0, 1.0 - 2.0**-53)
