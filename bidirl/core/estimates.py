"""What the coordinator asks of, and tells to, the models of time. Implemented in ``bidirl.models``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bidirl.core.chunks import SubStage
from bidirl.core.interfaces import StageModel
from bidirl.core.topology import Direction
from bidirl.core.work import RolloutUsage, RolloutWork, SwitchCost, TrainerWork


class Estimates(Protocol):
    """Stage models, length statistics and switch costs, fed by the coordinator as units of work finish."""

    @property
    def rollout_model(self) -> StageModel[RolloutWork, RolloutUsage]:
        """M_r."""

    @property
    def trainer_model(self) -> StageModel[TrainerWork, TrainerWork]:
        """M_t."""

    def observe_rollout(self, usage: RolloutUsage, seconds: float) -> object:
        """One rollout replica did ``usage`` in ``seconds`` of busy time."""

    def observe_chunks(self, chunks: Sequence[tuple[SubStage, int]], seconds: float) -> object:
        """One trainer replica computed ``chunks`` in ``seconds``."""

    def observe_length(self, response_tokens: int) -> None:
        """One response finished."""

    def observe_switch(
        self,
        direction: Direction,
        in_seconds: float | None = None,
        out_seconds: float | None = None,
        grad_seconds: float | None = None,
    ) -> None:
        """Parts of a switch were measured."""

    def switch_cost(self, direction: Direction) -> SwitchCost:
        """Current estimate of the costs of one direction."""

    def measured_switch_cost(self, direction: Direction) -> Mapping[str, float | None]:
        """Means by part (``in``, ``out``, ``grad``); ``None`` where nothing was measured."""

    def rollout_work(
        self, generated: NDArray[np.int64], prompt_tokens: float, resident: NDArray[np.bool_], max_num_seqs: int
    ) -> RolloutWork:
        """Work left in unfinished sequences: their response tokens so far, and whether an engine holds them."""

    def errors(self) -> Mapping[str, Mapping[str, float]]:
        """Relative prediction errors by stage: ``rollout`` and ``train``, each with ``median`` and ``p90``."""

    def parameters(self) -> Mapping[str, Any]:
        """JSON-serialisable state of everything above."""

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
