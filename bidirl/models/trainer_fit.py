"""Fit of one sub-stage's chunk cost τ + α·(tokens/1k)^r, cheap enough to run after every chunk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bidirl.models.trainer_base import SubStageCost

EXPONENTS = tuple(round(0.8 + 0.1 * i, 1) for i in range(8))
"""Candidates for r_s: [0.8, 1.5]."""
_WARM_OBSERVATIONS = 32
_REFIT_EVERY = 8
_EXPONENT_PRICE = 0.5
"""Relative growth of the squared error per unit of (r − 1)², so that r leaves 1 only where the data ask for it."""


class SubStageFit:
    """Decayed relative least squares of (τ, α) for each candidate exponent; the best candidate is the estimate.

    Coefficients in ``fixed`` (``base_seconds``, ``ktoken_seconds``, ``exponent``) are kept as given.
    """

    def __init__(self, decay: float, ridge: float, fixed: Mapping[str, float]) -> None:
        self.decay = decay
        self.ridge = ridge
        self.fixed = dict(fixed)
        self.exponents = (self.fixed["exponent"],) if "exponent" in self.fixed else EXPONENTS
        self.num_observations = 0
        # Per exponent: Σ zz' (three entries), Σ z, and current (τ, α); z = (n, Σ t^r) / seconds. Plus Σ of weights.
        self._sums = [[0.0] * 5 for _ in self.exponents]
        start = (self.fixed.get("base_seconds", 0.0), self.fixed.get("ktoken_seconds", 0.0))
        self._theta = [start for _ in self.exponents]
        self._weight = 0.0
        self._best = min(range(len(self.exponents)), key=lambda i: abs(self.exponents[i] - 1.0))

    @property
    def stated(self) -> bool:
        """Whether every coefficient is fixed."""
        return len(self.fixed) == 3

    @property
    def cost(self) -> SubStageCost:
        """Current estimate."""
        base, slope = self._theta[self._best]
        return SubStageCost(base, slope, self.exponents[self._best])

    def observe(self, tokens: Iterable[int], seconds: float) -> bool:
        """Add one window of chunks; returns whether the estimate may have changed."""
        sizes = [size / 1000.0 for size in tokens]
        if not sizes or not 0.0 < seconds < float("inf"):
            return False
        self._weight = self.decay * self._weight + 1.0
        count = len(sizes) / seconds
        for exponent, sums in zip(self.exponents, self._sums, strict=True):
            power = sum([size**exponent for size in sizes]) / seconds
            for i, value in enumerate((count * count, count * power, power * power, count, power)):
                sums[i] = self.decay * sums[i] + value
        self.num_observations += 1
        if self.num_observations <= _WARM_OBSERVATIONS or self.num_observations % _REFIT_EVERY == 0:
            self._refit()
            return True
        return False

    def _refit(self) -> None:
        best_score = float("inf")
        for i, exponent in enumerate(self.exponents):
            self._theta[i] = tau, alpha = self._solve(self._sums[i], self._theta[i])
            cc, cp, pp, c, p = self._sums[i]
            loss = self._weight - 2 * (c * tau + p * alpha) + cc * tau * tau + 2 * cp * tau * alpha + pp * alpha * alpha
            bend = (exponent - 1.0) ** 2
            score = max(loss, 0.0) / self._weight * (1 + _EXPONENT_PRICE * bend) + 1e-9 * bend
            if score < best_score:
                best_score, self._best = score, i

    def _solve(self, sums: list[float], current: tuple[float, float]) -> tuple[float, float]:
        """Non-negative (τ, α) of one candidate, with the ridge towards ``current`` in normalised units."""
        cc, cp, pp, c, p = sums
        if pp <= 0.0:
            return current
        cc_r, pp_r = cc * (1 + self.ridge), pp * (1 + self.ridge)
        c, p = c + self.ridge * cc * current[0], p + self.ridge * pp * current[1]
        if "base_seconds" in self.fixed or "ktoken_seconds" in self.fixed:
            tau = self.fixed.get("base_seconds")
            alpha = self.fixed.get("ktoken_seconds")
            tau_free = max(0.0, (c - cp * (alpha or 0.0)) / cc_r) if tau is None else tau
            alpha_free = max(0.0, (p - cp * tau_free) / pp_r) if alpha is None else alpha
            return tau_free, alpha_free
        determinant = cc_r * pp_r - cp * cp
        tau, alpha = (c * pp_r - p * cp) / determinant, (p * cc_r - c * cp) / determinant
        if alpha < 0.0:
            return max(0.0, c / cc_r), 0.0
        return (0.0, max(0.0, p / pp_r)) if tau < 0.0 else (tau, alpha)

    def state(self) -> dict[str, Any]:
        """JSON-serialisable state."""
        return {
            "exponents": list(self.exponents),
            "sums": [list(sums) for sums in self._sums],
            "theta": [list(theta) for theta in self._theta],
            "weight": self._weight,
            "best": self._best,
            "num_observations": self.num_observations,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.exponents = tuple(state["exponents"])
        self._sums = [list(sums) for sums in state["sums"]]
        self._theta = [(float(tau), float(alpha)) for tau, alpha in state["theta"]]
        self._weight = float(state["weight"])
        self._best = int(state["best"])
        self.num_observations = int(state["num_observations"])
