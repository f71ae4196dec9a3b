"""Statistics of finished response lengths, and the rollout work that they predict for unfinished sequences."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bidirl.core.work import RolloutWork

_BINS = 24
"""Distinct prefix lengths that a prediction tells apart."""
_GRID = 48
"""Points at which the distribution of the longest residual is evaluated."""


class LengthStats:
    """What finished responses say about unfinished ones. Lengths are response tokens.

    Args:
        max_response_tokens: the cap; no prediction goes beyond it. Until the first response has finished, lengths count
            as uniform up to the cap.
        window: finished lengths that are retained.
        decay: weight of a length relative to the next one, for the mean and the second moment.
    """

    def __init__(self, *, max_response_tokens: int, window: int = 1024, decay: float = 0.999) -> None:
        self.max_response_tokens = max_response_tokens
        self.decay = decay
        self._recent: deque[int] = deque(maxlen=window)
        self._weight = self._sum = self._square_sum = 0.0
        self._sorted: NDArray[np.float64] | None = None

    def observe(self, response_tokens: int) -> None:
        """One response has finished."""
        self._recent.append(int(response_tokens))
        self._weight = self.decay * self._weight + 1.0
        self._sum = self.decay * self._sum + response_tokens
        self._square_sum = self.decay * self._square_sum + float(response_tokens) ** 2
        self._sorted = None

    @property
    def num_retained(self) -> int:
        """Finished lengths in the window."""
        return len(self._recent)

    @property
    def mean_tokens(self) -> float:
        """Decayed mean."""
        return self._sum / self._weight if self._weight else self.max_response_tokens / 2.0

    @property
    def second_moment(self) -> float:
        """Decayed mean of the squared length."""
        return self._square_sum / self._weight if self._weight else self.max_response_tokens**2 / 3.0

    def quantile_tokens(self, q: float) -> float:
        """Quantile of the retained window, 0 ≤ q ≤ 1."""
        return float(np.quantile(self._window(), q))

    def _window(self) -> NDArray[np.float64]:
        """Retained lengths in ascending order; a uniform stand-in while there are none."""
        if self._sorted is None:
            if self._recent:
                self._sorted = np.sort(np.fromiter(self._recent, dtype=np.float64))
            else:
                self._sorted = np.linspace(1.0, float(self.max_response_tokens), 64)
        return self._sorted

    def _residuals(self, generated: float) -> NDArray[np.float64]:
        """Ascending residual lengths of the window's responses that were longer than ``generated``.

        Beyond the longest retained response there is no evidence: halfway to the cap.
        """
        window = self._window()
        longer = window[np.searchsorted(window, generated, side="right") :]
        if longer.size:
            return np.asarray(longer - generated)
        return np.array([max(1.0, (self.max_response_tokens - generated) / 2.0)])

    def mean_residual(self, generated: float) -> float:
        """Expected tokens still to come of a response that has ``generated`` tokens and has not finished."""
        return float(self._residuals(generated).mean())

    def expected_longest(self, num_sequences: int, generated: float = 0.0) -> float:
        """Expected largest residual of ``num_sequences`` responses with ``generated`` tokens each (order statistic)."""
        if num_sequences <= 0:
            return 0.0
        residuals = self._residuals(generated)
        return _expected_maximum([(residuals, num_sequences)])

    def rollout_work(
        self,
        generated: Sequence[int],
        prompt_tokens: Sequence[int] | float,
        resident: Sequence[bool] | bool,
        max_num_seqs: int,
    ) -> RolloutWork:
        """Work that is left in unfinished sequences.

        Args:
            generated: response tokens so far of each unfinished sequence.
            prompt_tokens: of each sequence, or one value for all.
            resident: whether an engine holds the sequence's context now; others have prompt and prefix prefilled.
            max_num_seqs: sequences that one replica runs at once.
        """
        count = len(generated)
        if count == 0:
            return RolloutWork(0, 0.0, 0.0, 0.0, 0.0, max_num_seqs)
        done = np.asarray(generated, dtype=np.float64)
        context = done + np.asarray(prompt_tokens, dtype=np.float64)
        absent = ~np.broadcast_to(np.asarray(resident, dtype=bool), done.shape)
        parts = [(self._residuals(value), number) for value, number in _binned(done)]
        mean = sum(float(residuals.mean()) * number for residuals, number in parts) / count
        longest = max(mean, _expected_maximum(parts))
        return RolloutWork(count, float(context.mean()), mean, longest, float(context[absent].sum()), max_num_seqs)

    def parameters(self) -> Mapping[str, Any]:
        """JSON-serialisable state."""
        return {
            "recent": list(self._recent),
            "weight": self._weight,
            "sum": self._sum,
            "square_sum": self._square_sum,
        }

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        self._recent.clear()
        self._recent.extend(int(value) for value in parameters["recent"])
        self._weight = float(parameters["weight"])
        self._sum = float(parameters["sum"])
        self._square_sum = float(parameters["square_sum"])
        self._sorted = None


def _binned(values: NDArray[np.float64]) -> list[tuple[float, int]]:
    """(mean, count) of at most ``_BINS`` bins of equal width."""
    low, high = float(values.min()), float(values.max())
    if high == low:
        return [(low, len(values))]
    index = np.minimum(((values - low) * (_BINS / (high - low))).astype(np.intp), _BINS - 1)
    counts = np.bincount(index, minlength=_BINS)
    sums = np.bincount(index, weights=values, minlength=_BINS)
    return [(float(sums[i] / counts[i]), int(counts[i])) for i in np.flatnonzero(counts)]


def _expected_maximum(parts: Sequence[tuple[NDArray[np.float64], int]]) -> float:
    """E[max] of independent draws: ``number`` draws from each ascending empirical sample.

    E[max] = ∫ (1 − Π F_i(x)^{n_i}) dx over x ≥ 0; exact for one sample, on a grid of ``_GRID`` points for several.
    """
    if len(parts) == 1:
        sample, number = parts[0]
        cumulative = np.arange(1, sample.size + 1) / sample.size
        weights = np.diff(cumulative**number, prepend=0.0)
        return float(weights @ sample)
    top = max(float(sample[-1]) for sample, _ in parts)
    grid = np.linspace(0.0, top, _GRID + 1)
    middle = (grid[:-1] + grid[1:]) / 2.0
    below = np.ones(_GRID)
    for sample, number in parts:
        below = below * (np.searchsorted(sample, middle, side="right") / sample.size) ** number
    return float((1.0 - below).sum() * top / _GRID)
