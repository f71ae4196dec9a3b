"""The random stream of a sample: a pure function of (seed, group, sample, token position).

A resumed prefix therefore continues the stream on any worker, and no two samples or positions share a number. The
generator is counter-based: the SplitMix64 finaliser over key and position.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def sample_key(seed: int, group_id: int, sample_index: int) -> int:
    """64-bit key of one sample's stream."""
    key = np.zeros(1, np.uint64)
    for part in (seed, group_id, sample_index):
        key = _mixed(key * _GOLDEN + np.uint64(part) + np.uint64(1))
    return int(key[0])


def uniforms(keys: NDArray[np.uint64], positions: NDArray[np.uint64]) -> NDArray[np.float64]:
    """One number in (0, 1) per row: that of ``keys[i]`` at response token ``positions[i]``."""
    bits = _mixed(_mixed(keys + positions * _GOLDEN) ^ keys)
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _MULTIPLIERS[0]
    values = (values ^ (values >> np.uint64(27))) * _MULTIPLIERS[1]
    return values ^ (values >> np.uint64(31))
