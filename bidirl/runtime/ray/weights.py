"""Weights on the move: one flat immutable buffer per version, and where each parameter lies in it. numpy only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

BYTES_PER_ELEMENT: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """Order and shapes of the parameters in a flat buffer.

    Attributes:
        dtype: of every parameter.
        shapes: parameter name → shape, in buffer order.
        aliases: other names of tied parameters → the name under which the buffer holds them. A receiver must be sent
            these too: an engine may hold tied parameters apart, and would silently keep the old ones.
    """

    dtype: str
    shapes: Mapping[str, tuple[int, ...]]
    aliases: Mapping[str, str]

    @property
    def num_parameters(self) -> int:
        """Elements of the buffer."""
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def num_bytes(self) -> int:
        """Size of the buffer."""
        return self.num_parameters * BYTES_PER_ELEMENT[self.dtype]

    def byte_ranges(self) -> Iterator[tuple[str, tuple[int, ...], int, int]]:
        """Per parameter: name, shape, first byte, one past its last byte."""
        start = 0
        for name, shape in self.shapes.items():
            end = start + prod(shape) * BYTES_PER_ELEMENT[self.dtype]
            yield name, shape, start, end
            start = end


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one version, with the log-probs by which a receiver proves that it has loaded them.

    Attributes:
        version: optimizer steps applied.
        layout: where each parameter lies in ``data``.
        data: shape ``(layout.num_bytes,)``, uint8; never written to.
        probe_logprobs: the trainers' log-probs of the probe's tokens after the first, float32.
    """

    version: int
    layout: WeightLayout
    data: NDArray[np.uint8]
    probe_logprobs: NDArray[np.float32]

    def probe_difference(self, logprobs: NDArray[np.float32]) -> float:
        """Mean absolute difference of a receiver's log-probs to the trainers', in nats."""
        return float(np.mean(np.abs(logprobs - self.probe_logprobs)))


def probe_tokens(vocabulary_size: int, length: int = 17) -> NDArray[np.int32]:
    """A fixed token sequence that touches ids all over the vocabulary."""
    return np.array([(7 + 7919 * i * i + 104729 * i) % vocabulary_size for i in range(length)], np.int32)
