"""Stage-time models that interpolate measured tables: no formula to believe in, only points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.core.work import RolloutUsage, TrainerWork
from bidirl.models.rollout_base import RolloutModel
from bidirl.models.trainer_base import Chunks, TrainerModel


class Table:
    """Piecewise-linear through (x, seconds) points; beyond the ends the end slopes continue, never below 0."""

    def __init__(self, points: Mapping[float, float], key: str) -> None:
        pairs = sorted((float(x), float(y)) for x, y in points.items())
        if len(pairs) < 2:
            raise ConfigError(f"{key} has {len(pairs)} points: give at least 2")
        if not all(0.0 <= value < float("inf") for pair in pairs for value in pair):
            raise ConfigError(f"{key} holds a negative or non-finite number: give finite points of at least 0")
        self.x = [x for x, _ in pairs]
        self.y = [y for _, y in pairs]

    def __call__(self, x: float) -> float:
        """Seconds at ``x``."""
        xs, ys = self.x, self.y
        if xs[0] <= x <= xs[-1]:
            return float(np.interp(x, xs, ys))
        i, j = (0, 1) if x < xs[0] else (-2, -1)
        return max(0.0, ys[i] + (ys[j] - ys[i]) * (x - xs[i]) / (xs[j] - xs[i]))

    def points(self) -> dict[str, float]:
        """The points, JSON-serialisable."""
        return {str(x): y for x, y in zip(self.x, self.y, strict=True)}


class TableRolloutModel(RolloutModel):
    """Seconds of a decode step by running sequences, interpolated; prefill by tokens. The ratio to reality adapts.

    Args:
        step_seconds: running sequences → seconds of one decode step; at least 2 points.
        prefill_seconds: per prefilled token.
        adapt: weight of each new measured/predicted ratio in the scale, in [0, 1]; 0 never learns.
    """

    def __init__(self, *, step_seconds: dict[int, float], prefill_seconds: float = 0.0, adapt: float = 0.05) -> None:
        self._table = Table({float(n): seconds for n, seconds in step_seconds.items()}, "step_seconds")
        self.prefill_seconds = prefill_seconds
        self.adapt = adapt
        self.scale = 1.0

    @property
    def ready(self) -> bool:
        """Always: the table was measured before."""
        return True

    def predict_usage(self, usage: RolloutUsage) -> float:
        """Seconds that one replica needs for exactly this usage."""
        seconds = self.prefill_seconds * usage.prefill_tokens
        if usage.decode_steps > 0:
            seconds += usage.decode_steps * self._table(usage.decode_tokens / usage.decode_steps)
        return self.scale * seconds

    def observe(self, usage: RolloutUsage, seconds: float) -> None:
        """Move the scale towards the measured ratio."""
        predicted = self.predict_usage(usage)
        if predicted > 0.0 and 0.0 < seconds < float("inf"):
            self.scale *= (seconds / predicted) ** self.adapt

    def parameters(self) -> Mapping[str, Any]:
        """Points, prefill cost and scale."""
        return {"step_seconds": self._table.points(), "prefill_seconds": self.prefill_seconds, "scale": self.scale}

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        self._table = Table({float(n): y for n, y in parameters["step_seconds"].items()}, "step_seconds")
        self.prefill_seconds = float(parameters["prefill_seconds"])
        self.scale = float(parameters["scale"])


class TableTrainerModel(TrainerModel):
    """Seconds of a chunk by its tokens, interpolated per sub-stage. The ratio to reality adapts per sub-stage.

    Args:
        actor_update, old_logprob, ref_logprob: tokens → seconds of one chunk; at least 2 points. Left out: free.
        comm_byte_seconds: seconds per communicated byte, not overlapped.
        adapt: weight of each new measured/predicted ratio in the scale, in [0, 1]; 0 never learns.
    """

    def __init__(
        self,
        *,
        actor_update: dict[int, float],
        old_logprob: dict[int, float] | None = None,
        ref_logprob: dict[int, float] | None = None,
        comm_byte_seconds: float = 0.0,
        adapt: float = 0.05,
    ) -> None:
        given: Sequence[tuple[SubStage, dict[int, float] | None]] = (
            (SubStage.OLD_LOGPROB, old_logprob),
            (SubStage.REF_LOGPROB, ref_logprob),
            (SubStage.ACTOR_UPDATE, actor_update),
        )
        self._tables = {s: Table({float(t): y for t, y in points.items()}, s) for s, points in given if points}
        self.comm_byte_seconds = comm_byte_seconds
        self.adapt = adapt
        self._scales = dict.fromkeys(SubStage, 1.0)

    @property
    def ready(self) -> bool:
        """Always: the table was measured before."""
        return True

    def chunk_costs(self, chunks: Chunks) -> list[float]:
        """Seconds of each chunk on one replica."""
        costs = np.zeros(len(chunks))
        for stage, table in self._tables.items():
            index = [i for i, (s, _) in enumerate(chunks) if s is stage]
            if not index:
                continue
            tokens = np.array([chunks[i][1] for i in index], dtype=np.float64)
            seconds = np.interp(tokens, table.x, table.y)
            for outside in np.flatnonzero((tokens < table.x[0]) | (tokens > table.x[-1])):
                seconds[outside] = table(float(tokens[outside]))
            costs[index] = self._scales[stage] * seconds
        return [float(cost) for cost in costs]

    def comm_seconds(self, num_bytes: float) -> float:
        """β_comm · bytes."""
        return self.comm_byte_seconds * num_bytes

    def observe(self, usage: TrainerWork, seconds: float) -> None:
        """Move the scales of the sub-stages in the window towards the measured ratio."""
        predicted = self.predict_usage(usage)
        if predicted > 0.0 and 0.0 < seconds < float("inf"):
            for stage in {stage for stage, _ in usage.chunks}:
                self._scales[stage] *= (seconds / predicted) ** self.adapt
            self._forget_costs()

    def parameters(self) -> Mapping[str, Any]:
        """Points, communication cost and scales."""
        return {
            "tables": {str(stage): table.points() for stage, table in self._tables.items()},
            "comm_byte_seconds": self.comm_byte_seconds,
            "scales": {str(stage): scale for stage, scale in self._scales.items()},
        }

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        self._tables = {
            SubStage(s): Table({float(t): y for t, y in points.items()}, s)
            for s, points in parameters["tables"].items()
        }
        self.comm_byte_seconds = float(parameters["comm_byte_seconds"])
        self._scales = {SubStage(s): float(scale) for s, scale in parameters["scales"].items()}
        self._forget_costs()
