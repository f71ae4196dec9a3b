"""Switch costs per direction: decayed means of what was measured, stated priors until then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.core.work import SwitchCost

_PARTS = ("in", "out", "grad")

GRAD_SHARE = 0.2
"""C_grad / C_in in the paper's Table 5: 0.66 / 3.58 and 1.21 / 6.16."""


class SwitchCostModel:
    """C_in, C_out and C_grad of each direction.

    Until a part was measured its prior holds. C_grad cannot be probed before the first step; its prior is a share of
    the current C_in estimate. A prior that is too high is never corrected, because no lease is admitted that would
    measure it. rollouter_on_trainpool never merges, so its C_grad is 0.

    Args:
        prior_in_seconds: C_in of both directions until measured.
        prior_out_seconds: C_out of both directions until measured.
        prior_grad_seconds: C_grad of trainer_on_rollpool until measured; ``None``: :data:`GRAD_SHARE` of C_in.
        decay: weight of a measurement relative to the next one, in [0, 1).
    """

    def __init__(
        self,
        *,
        prior_in_seconds: float = 1.0,
        prior_out_seconds: float = 1.0,
        prior_grad_seconds: float | None = None,
        decay: float = 0.7,
    ) -> None:
        for key, value in (("prior_in_seconds", prior_in_seconds), ("prior_out_seconds", prior_out_seconds)):
            if not 0.0 <= value < float("inf"):
                raise ConfigError(f"{key} is {value}: it must be finite and at least 0")
        if not 0.0 <= decay < 1.0:
            raise ConfigError(f"decay is {decay}: it must be at least 0 and below 1")
        self.prior_in_seconds = prior_in_seconds
        self.prior_out_seconds = prior_out_seconds
        self.prior_grad_seconds = prior_grad_seconds
        self.decay = decay
        self._sums = {(d, part): (0.0, 0.0) for d in Direction for part in _PARTS}

    def observe(
        self,
        direction: Direction,
        in_seconds: float | None = None,
        out_seconds: float | None = None,
        grad_seconds: float | None = None,
    ) -> None:
        """Record what was measured; parts left out stay as they are."""
        for part, seconds in zip(_PARTS, (in_seconds, out_seconds, grad_seconds), strict=True):
            if seconds is not None and 0.0 <= seconds < float("inf"):
                total, weight = self._sums[direction, part]
                self._sums[direction, part] = (self.decay * total + seconds, self.decay * weight + 1.0)

    def measured(self, direction: Direction) -> dict[str, float | None]:
        """Decayed means by part (``in``, ``out``, ``grad``); ``None`` where nothing was measured."""
        return {part: self._mean(direction, part) for part in _PARTS}

    def cost(self, direction: Direction) -> SwitchCost:
        """Current estimate."""
        into = self._or(direction, "in", self.prior_in_seconds)
        out = self._or(direction, "out", self.prior_out_seconds)
        if direction is Direction.ROLLOUTER_ON_TRAINPOOL:
            return SwitchCost(into, out, 0.0)
        grad_prior = GRAD_SHARE * into if self.prior_grad_seconds is None else self.prior_grad_seconds
        return SwitchCost(into, out, self._or(direction, "grad", grad_prior))

    def _mean(self, direction: Direction, part: str) -> float | None:
        total, weight = self._sums[direction, part]
        return total / weight if weight else None

    def _or(self, direction: Direction, part: str, prior: float) -> float:
        mean = self._mean(direction, part)
        return prior if mean is None else mean

    def parameters(self) -> Mapping[str, Any]:
        """JSON-serialisable state."""
        return {f"{direction}.{part}": list(sums) for (direction, part), sums in self._sums.items()}

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        for key, (total, weight) in parameters.items():
            direction, part = key.split(".")
            self._sums[Direction(direction), part] = (float(total), float(weight))
