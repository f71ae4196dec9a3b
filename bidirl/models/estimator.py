"""Everything that a run knows about time: stage models, length statistics and switch costs, behind one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bidirl.core.chunks import SubStage
from bidirl.core.interfaces import StageModel
from bidirl.core.topology import Direction
from bidirl.core.work import RolloutUsage, RolloutWork, SwitchCost, TrainerWork
from bidirl.models.lengths import LengthStats
from bidirl.models.profiler import OnlineProfiler
from bidirl.models.rollout import CalibratedRolloutModel
from bidirl.models.switch_cost import SwitchCostModel
from bidirl.models.trainer import CalibratedTrainerModel


class Estimator:
    """The shipped implementation of :class:`bidirl.core.estimates.Estimates`."""

    def __init__(
        self,
        *,
        rollout_model: StageModel[RolloutWork, RolloutUsage],
        trainer_model: StageModel[TrainerWork, TrainerWork],
        switch_costs: SwitchCostModel,
        max_response_tokens: int,
    ) -> None:
        self.profiler = OnlineProfiler(rollout_model=rollout_model, trainer_model=trainer_model)
        self.switch_costs = switch_costs
        self.lengths = LengthStats(max_response_tokens=max_response_tokens)

    @classmethod
    def calibrated(cls, max_response_tokens: int) -> Estimator:
        """Fresh calibrated models and default priors: what a config that names no models gets."""
        return cls(
            rollout_model=CalibratedRolloutModel(),
            trainer_model=CalibratedTrainerModel(),
            switch_costs=SwitchCostModel(),
            max_response_tokens=max_response_tokens,
        )

    @property
    def rollout_model(self) -> StageModel[RolloutWork, RolloutUsage]:
        """M_r."""
        return self.profiler.rollout_model

    @property
    def trainer_model(self) -> StageModel[TrainerWork, TrainerWork]:
        """M_t."""
        return self.profiler.trainer_model

    def observe_rollout(self, usage: RolloutUsage, seconds: float) -> None:
        """One rollout replica did ``usage`` in ``seconds`` of busy time."""
        self.profiler.observe_rollout(usage, seconds)

    def observe_chunks(self, chunks: Sequence[tuple[SubStage, int]], seconds: float) -> None:
        """One trainer replica computed ``chunks`` in ``seconds``."""
        self.profiler.observe_chunks(chunks, seconds)

    def observe_length(self, response_tokens: int) -> None:
        """One response finished."""
        self.lengths.observe(response_tokens)

    def observe_switch(
        self,
        direction: Direction,
        in_seconds: float | None = None,
        out_seconds: float | None = None,
        grad_seconds: float | None = None,
    ) -> None:
        """Parts of a switch were measured."""
        self.switch_costs.observe(direction, in_seconds, out_seconds, grad_seconds)

    def switch_cost(self, direction: Direction) -> SwitchCost:
        """Current estimate of the costs of one direction."""
        return self.switch_costs.cost(direction)

    def measured_switch_cost(self, direction: Direction) -> Mapping[str, float | None]:
        """Means by part; ``None`` where nothing was measured."""
        return self.switch_costs.measured(direction)

    def rollout_work(
        self, generated: NDArray[np.int64], prompt_tokens: float, resident: NDArray[np.bool_], max_num_seqs: int
    ) -> RolloutWork:
        """Work left in unfinished sequences with these many response tokens each."""
        return self.lengths.rollout_work(generated, prompt_tokens, resident, max_num_seqs)

    def errors(self) -> Mapping[str, Mapping[str, float]]:
        """Relative prediction errors by stage."""
        return self.profiler.errors()

    def parameters(self) -> Mapping[str, Any]:
        """JSON-serialisable state of all parts."""
        return {
            **self.profiler.parameters(),
            "lengths": self.lengths.parameters(),
            "switch_costs": self.switch_costs.parameters(),
        }

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        self.profiler.load_parameters(parameters)
        self.lengths.load_parameters(parameters["lengths"])
        self.switch_costs.load_parameters(parameters["switch_costs"])
