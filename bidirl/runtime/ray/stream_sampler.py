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

    Args:
        logits: shape ``(rows, vocabulary)``, float32.
        draws: shape ``(rows,)``, float64, in (0, 1).
    """
    weights = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    chosen = torch.searchsorted(cumulative, (draws * cumulative[:, -1])[:, None], right=True)
    return chosen[:, 0].clamp(max=logits.shape[-1] - 1)
