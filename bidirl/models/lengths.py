"""Statistics of finished response lengths, and the rollout work that they predict for unfinished sequences."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bidirl.core.work import RolloutWork

_BINS = 24
"""Distinct prefix lengths that a prediction tells apart."""
_GRID = 48
"""Points at which the distribution of the longest residual is evaluated."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A discrete distribution: ascending ``values``, and the probability ``cumulative`` of each or less (ends at 1)."""

    values: NDArray[np.float64]
    cumulative: NDArray[np.float64]

    def mean(self) -> float:
        """Expected value."""
        steps = self.cumulative[1:] - self.cumulative[:-1]
        return float(self.cumulative[0] * self.values[0] + steps @ self.values[1:])

    def at(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of at most each point."""
        padded = np.concatenate(([0.0], self.cumulative))
        return np.asarray(padded[np.searchsorted(self.values, points, side="right")])

    def residual(self, generated: float, cap: float) -> Distribution:
        """What is left of a value that is known to exceed ``generated``; without evidence, halfway to ``cap``."""
        if generated <= 0.0:
            return self
        first = int(np.searchsorted(self.values, generated, side="right"))
        below = float(self.cumulative[first - 1]) if first else 0.0
        if first == self.values.size or below >= 1.0:
            return Distribution(np.array([max(1.0, (cap - generated) / 2.0)]), np.ones(1))
        scaled = (self.cumulative[first:] - below) / (1.0 - below)
        return Distribution(self.values[first:] - generated, scaled)


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

    def _lengths(self, unfinished: NDArray[np.float64] | None = None) -> Distribution:
        """Distribution of a response's length: Kaplan and Meier's estimate.

        The window holds what has finished, and short responses finish first. ``unfinished`` responses, which are known
        to be longer than what they have, count as such (right-censored); without them the estimate would be too short.
        Mass beyond the longest retained response is put halfway between what is known and the cap.
        """
        window = self._window()
        count = window.size
        if unfinished is None or not unfinished.size:
            return Distribution(window, np.arange(1, count + 1) / count)
        begun = np.sort(unfinished)
        at_risk = np.arange(count, 0, -1) + begun.size - np.searchsorted(begun, window, side="left")
        survival: NDArray[np.float64] = np.cumprod(1.0 - 1.0 / at_risk, dtype=np.float64)
        if survival[-1] <= 0.0:
            return Distribution(window, 1.0 - survival)
        known = max(float(window[-1]), float(begun[-1]))
        beyond = known + max(1.0, (self.max_response_tokens - known) / 2.0)
        return Distribution(np.append(window, beyond), np.append(1.0 - survival, 1.0))

    def mean_residual(self, generated: float) -> float:
        """Expected tokens still to come of a response that has ``generated`` tokens and has not finished."""
        return self._lengths().residual(generated, self.max_response_tokens).mean()

    def expected_longest(self, num_sequences: int, generated: float = 0.0) -> float:
        """Expected largest residual of ``num_sequences`` responses with ``generated`` tokens each (order statistic)."""
        if num_sequences <= 0:
            return 0.0
        residuals = self._lengths().residual(generated, self.max_response_tokens)
        return _expected_maximum([(residuals, num_sequences)])

    def rollout_work(
        self,
        generated: NDArray[np.int64] | Sequence[int],
        prompt_tokens: NDArray[np.int64] | Sequence[int] | float,
        resident: NDArray[np.bool_] | Sequence[bool] | bool,
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
        lengths, cap = self._lengths(done[done > 0.0]), self.max_response_tokens
        parts = [(lengths.residual(value, cap), number) for value, number in _binned(done)]
        mean = sum(residuals.mean() * number for residuals, number in parts) / count
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


def _expected_maximum(parts: Sequence[tuple[Distribution, int]]) -> float:
    """E[max] of independent draws: ``number`` draws from each distribution.

    E[max] = ∫ (1 − Π F_i(x)^{n_i}) dx over x ≥ 0; exact for one distribution, on ``_GRID`` points for several.
    """
    if len(parts) == 1:
        part, number = parts[0]
        weights = np.diff(part.cumulative**number, prepend=0.0)
        return float(weights @ part.values)
    top = max(float(part.values[-1]) for part, _ in parts)
    grid = np.linspace(0.0, top, _GRID + 1)
    middle = (grid[:-1] + grid[1:]) / 2.0
    below = np.ones(_GRID)
    for part, number in parts:
        below = below * part.at(middle) ** number
    return float((1.0 - below).sum() * top / _GRID)
