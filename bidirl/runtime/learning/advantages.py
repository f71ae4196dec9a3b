"""Group-relative advantages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def group_advantages(rewards: Sequence[float | None], normalise_std: bool) -> NDArray[np.float64]:
    """Rewards of one group, centred and (optionally) divided by their sample standard deviation.

    Args:
        rewards: one per sample; ``None`` or a value that is not finite means that the sample could not be scored.
        normalise_std: whether to divide by the standard deviation (``n - 1`` in its denominator).

    Returns:
        Shape ``(num_samples,)``. NaN for a sample without a score. Exactly 0 for the others when fewer than two have a
        score or all scores are equal (compared as numbers, not by a standard deviation that rounding keeps off 0).
    """
    values = np.array([np.nan if reward is None else reward for reward in rewards], dtype=np.float64)
    scored = np.isfinite(values)
    result = np.where(scored, 0.0, np.nan)
    known = values[scored]
    if len(known) < 2 or known.min() == known.max():
        return result
    # Scaled to at most 1 first, so that neither huge nor tiny rewards overflow or underflow in the squares.
    scale = np.abs(known).max()
    centred = known / scale - np.mean(known / scale)
    if normalise_std:
        spread = np.sqrt(np.sum(centred**2) / (len(known) - 1))
        result[scored] = centred / spread if spread > 0 else 0.0
    else:
        result[scored] = centred * scale
    return result
