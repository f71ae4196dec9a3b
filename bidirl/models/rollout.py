"""Rollout stage-time model fitted online. Form ours, coefficient names the paper's (§A.1 is not public)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bidirl.core.errors import ConfigError
from bidirl.core.work import RolloutUsage
from bidirl.models.fit import DecayedLeastSquares
from bidirl.models.rollout_base import RolloutModel

ROLLOUT_COEFFICIENTS = ("prefill_seconds", "step_seconds", "token_seconds", "context_seconds")
"""τ_pre per prefilled token, τ_dec per decode step, β_tok per decoded token, β_hist per context token and step."""


def usage_features(usage: RolloutUsage) -> tuple[float, float, float, float]:
    """The four counters, in the order of :data:`ROLLOUT_COEFFICIENTS`."""
    return usage.prefill_tokens, usage.decode_steps, usage.decode_tokens, usage.context_token_steps


def check_names(given: Mapping[str, float], allowed: tuple[str, ...], key: str) -> None:
    """Refuse unknown, negative or non-finite coefficients.

    Raises:
        ConfigError: naming the coefficient and those available.
    """
    for name, value in given.items():
        if name not in allowed:
            raise ConfigError(f"{key}.{name} does not exist: use one of {', '.join(allowed)}")
        if not 0.0 <= value < float("inf"):
            raise ConfigError(f"{key}.{name} is {value}: it must be finite and at least 0")


class CalibratedRolloutModel(RolloutModel):
    """seconds = τ_pre·prefill + τ_dec·steps + β_tok·decode_tokens + β_hist·context_token_steps, fitted as the job runs.

    Args:
        min_observations: windows before the model calls itself ready.
        decay: weight of an observation relative to the next one, in (0, 1].
        ridge: pull towards the current coefficients, relative to the (unit) curvature of a normalised column.
        fixed: coefficients that are stated, not fitted, by their names in :data:`ROLLOUT_COEFFICIENTS`. A model with
            all four fixed is ready from the start.
    """

    def __init__(
        self,
        *,
        min_observations: int = 8,
        decay: float = 0.98,
        ridge: float = 1e-3,
        fixed: dict[str, float] | None = None,
    ) -> None:
        check_names(fixed or {}, ROLLOUT_COEFFICIENTS, "fixed")
        self.min_observations = min_observations
        self.fixed = dict(fixed or {})
        self._fit = DecayedLeastSquares(
            len(ROLLOUT_COEFFICIENTS), decay, ridge, {ROLLOUT_COEFFICIENTS.index(k): v for k, v in self.fixed.items()}
        )
        self._refresh()

    def _refresh(self) -> None:
        self._pre, self._step, self._token, self._context = (float(value) for value in self._fit.theta)

    @property
    def ready(self) -> bool:
        """Whether enough windows were seen, or everything is stated."""
        return len(self.fixed) == len(ROLLOUT_COEFFICIENTS) or self._fit.num_observations >= self.min_observations

    @property
    def coefficients(self) -> dict[str, float]:
        """Current coefficients, in seconds per unit."""
        return dict(zip(ROLLOUT_COEFFICIENTS, (self._pre, self._step, self._token, self._context), strict=True))

    def predict_usage(self, usage: RolloutUsage) -> float:
        """Seconds that one replica needs for exactly this usage."""
        return (
            self._pre * usage.prefill_tokens
            + self._step * usage.decode_steps
            + self._token * usage.decode_tokens
            + self._context * usage.context_token_steps
        )

    def observe(self, usage: RolloutUsage, seconds: float) -> None:
        """Learn from one replica that did ``usage`` in ``seconds`` of busy time."""
        self._fit.observe(usage_features(usage), seconds)
        self._refresh()

    def parameters(self) -> Mapping[str, Any]:
        """Coefficients by name, and the state of the fit."""
        return {"coefficients": self.coefficients, "fit": self._fit.state()}

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        self._fit.load_state(parameters["fit"])
        self._refresh()
