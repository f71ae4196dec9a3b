"""Online non-negative least squares with forgetting: the fit behind every calibrated stage-time model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

_OUTLIER_WIDTH = 3.0
"""Residuals beyond this many typical residuals weigh less (Huber)."""
_MIN_TYPICAL_ERROR = 0.02
"""Relative; a model that fits well must not call ordinary noise an outlier."""
_WARM_OBSERVATIONS = 32
_REFIT_EVERY = 4


class DecayedLeastSquares:
    """Fits ``seconds ≈ features · theta`` with ``theta ≥ 0``, in constant memory.

    Rows are divided by their seconds, so relative errors are minimised. Old rows fade by ``decay`` per new row. A ridge
    pulls towards the current ``theta``: directions that the data do not determine (few windows, collinear columns) stay
    where they are, the others converge to the least-squares solution over a few updates.
    """

    def __init__(self, num_features: int, decay: float, ridge: float, fixed: Mapping[int, float] | None = None) -> None:
        self.num_features = num_features
        self.decay = decay
        self.ridge = ridge
        self.fixed = dict(fixed or {})
        self.theta: NDArray[np.float64] = np.zeros(num_features)
        for index, value in self.fixed.items():
            self.theta[index] = value
        self.num_observations = 0
        self._free = [i for i in range(num_features) if i not in self.fixed]
        self._gram: NDArray[np.float64] = np.zeros((num_features, num_features))
        self._moment: NDArray[np.float64] = np.zeros(num_features)
        self._typical_error = 1.0

    def predict(self, features: Sequence[float]) -> float:
        """Seconds for one row of features."""
        return float(np.dot(self.theta, features))

    def observe(self, features: Sequence[float], seconds: float) -> None:
        """Add one row; ignored unless ``seconds`` and some feature are positive and finite."""
        row = np.asarray(features, dtype=np.float64)
        if not (0.0 < seconds < float("inf")) or not np.isfinite(row).all() or not (row > 0).any():
            return
        row = row / seconds
        weight = self._weight(row)
        self._gram = self.decay * self._gram + weight * np.outer(row, row)
        self._moment = self.decay * self._moment + weight * row
        self.num_observations += 1
        if self.num_observations <= _WARM_OBSERVATIONS or self.num_observations % _REFIT_EVERY == 0:
            self._solve()

    def _weight(self, row: NDArray[np.float64]) -> float:
        error = abs(float(row @ self.theta) - 1.0)
        limit = _OUTLIER_WIDTH * max(self._typical_error, _MIN_TYPICAL_ERROR)
        weight = 1.0 if error <= limit else limit / error
        self._typical_error = 0.9 * self._typical_error + 0.1 * min(error, limit)
        return weight

    def _solve(self) -> None:
        free = [i for i in self._free if self._gram[i, i] > 0]
        if not free:
            return
        scale = np.sqrt(np.diag(self._gram)[free])
        gram = self._gram[np.ix_(free, free)] / np.outer(scale, scale)
        moment = self._moment[free]
        for index, value in self.fixed.items():
            moment = moment - self._gram[free, index] * value
        hessian = gram + self.ridge * np.eye(len(free))
        target = moment / scale + self.ridge * scale * self.theta[free]
        lower = np.linalg.cholesky(hessian)
        solution, _ = nnls(lower.T, np.linalg.solve(lower, target))
        self.theta[free] = solution / scale

    def state(self) -> dict[str, Any]:
        """JSON-serialisable state."""
        return {
            "theta": self.theta.tolist(),
            "num_observations": self.num_observations,
            "gram": self._gram.tolist(),
            "moment": self._moment.tolist(),
            "typical_error": self._typical_error,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.theta = np.asarray(state["theta"], dtype=np.float64)
        self.num_observations = int(state["num_observations"])
        self._gram = np.asarray(state["gram"], dtype=np.float64)
        self._moment = np.asarray(state["moment"], dtype=np.float64)
        self._typical_error = float(state["typical_error"])
