"""The online profiler (§2.2): scores both stage-time models on every finished unit of work, then lets them learn."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bidirl.core.chunks import SubStage
from bidirl.core.interfaces import StageModel
from bidirl.core.work import RolloutUsage, RolloutWork, TrainerWork
from bidirl.models.checked import CheckedModel


class RelativeErrors:
    """|predicted − measured| / measured over the last ``window`` units."""

    def __init__(self, window: int) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self.num_recorded = 0
        self._predicted = self._measured = 0.0

    def record(self, predicted: float, measured: float) -> float:
        """Record one unit; returns its relative error."""
        error = abs(predicted - measured) / measured
        self._recent.append(error)
        self._predicted += predicted
        self._measured += measured
        self.num_recorded += 1
        return error

    def summary(self) -> dict[str, float]:
        """Median and 90th percentile, and all measured over all predicted seconds; ``nan`` while nothing is recorded.

        The ratio shows what a robust fit leaves out: a model of the typical unit is below the mean one.
        """
        if not self._recent:
            return dict.fromkeys(("median", "p90", "measured_over_predicted"), float("nan"))
        median, p90 = np.quantile(np.fromiter(self._recent, dtype=np.float64), (0.5, 0.9))
        ratio = self._measured / self._predicted if self._predicted > 0 else float("nan")
        return {"median": float(median), "p90": float(p90), "measured_over_predicted": ratio}


class OnlineProfiler:
    """Prequential: each unit is predicted before the model learns from it, so the errors are out of sample.

    Errors count only from the moment a model calls itself ready.

    Args:
        rollout_model: M_r.
        trainer_model: M_t.
        window: units over which the errors are summarised.
    """

    def __init__(
        self,
        *,
        rollout_model: StageModel[RolloutWork, RolloutUsage],
        trainer_model: StageModel[TrainerWork, TrainerWork],
        window: int = 1024,
    ) -> None:
        self.rollout_model = CheckedModel(inner=rollout_model)
        self.trainer_model = CheckedModel(inner=trainer_model)
        self._rollout_errors = RelativeErrors(window)
        self._train_errors = RelativeErrors(window)

    def observe_rollout(self, usage: RolloutUsage, seconds: float) -> float | None:
        """One replica did ``usage`` in ``seconds`` of busy time; returns the relative error if the model was ready."""
        if not seconds > 0.0:
            return None
        error = None
        if self.rollout_model.ready:
            error = self._rollout_errors.record(self.rollout_model.predict_usage(usage), seconds)
        self.rollout_model.observe(usage, seconds)
        return error

    def observe_chunks(self, chunks: Sequence[tuple[SubStage, int]], seconds: float) -> float | None:
        """One replica computed ``chunks`` one after the other in ``seconds``; returns the relative error likewise."""
        if not seconds > 0.0 or not chunks:
            return None
        work = TrainerWork(tuple(chunks))
        error = None
        if self.trainer_model.ready:
            error = self._train_errors.record(self.trainer_model.predict_usage(work), seconds)
        self.trainer_model.observe(work, seconds)
        return error

    def errors(self) -> dict[str, dict[str, float]]:
        """:meth:`RelativeErrors.summary` of ``rollout`` and of ``train``."""
        return {"rollout": self._rollout_errors.summary(), "train": self._train_errors.summary()}

    def parameters(self) -> Mapping[str, Any]:
        """State of both models, JSON-serialisable."""
        return {"rollout": self.rollout_model.parameters(), "train": self.trainer_model.parameters()}

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        self.rollout_model.load_parameters(parameters["rollout"])
        self.trainer_model.load_parameters(parameters["train"])
