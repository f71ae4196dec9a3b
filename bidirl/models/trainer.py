"""Trainer stage-time model fitted online. Form ours, coefficient names the paper's (§A.1 is not public)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.core.work import TrainerWork
from bidirl.models.fit import DecayedLeastSquares
from bidirl.models.rollout import check_names
from bidirl.models.trainer_base import Chunks, SubStageCost, TrainerModel, overlap
from bidirl.models.trainer_fit import SubStageFit

SUB_STAGE_COEFFICIENTS = ("base_seconds", "ktoken_seconds", "exponent")
"""τ_s, α_s, r_s."""
COMM_COEFFICIENTS = ("comm_base_seconds", "comm_byte_seconds")
"""α_comm, β_comm."""
TRAINER_COEFFICIENTS = (
    *(f"{stage}.{name}" for stage in SubStage for name in SUB_STAGE_COEFFICIENTS),
    *COMM_COEFFICIENTS,
)

PASSES = {SubStage.OLD_LOGPROB: 1.0, SubStage.REF_LOGPROB: 1.0, SubStage.ACTOR_UPDATE: 3.0}
"""Forward-pass equivalents of a sub-stage (a backward costs two): stands in for a sub-stage that nobody has seen."""


class CalibratedTrainerModel(TrainerModel):
    """Σ over chunks of τ_s + α_s·(tokens/1k)^r_s, list-scheduled over replicas, plus communication by a p-norm.

    A sub-stage that was never observed is predicted from the others by forward-pass equivalents (:data:`PASSES`).

    Args:
        min_observations: windows before the model calls itself ready.
        decay: weight of an observation relative to the next one of the same sub-stage, in (0, 1].
        ridge: pull towards the current coefficients, relative to the curvature of a normalised column.
        overlap_norm: p ≥ 1 of the p-norm; 1 is no overlap, ``inf`` full overlap.
        fixed: stated coefficients by name, for example ``{"actor_update.exponent": 1.0, "comm_base_seconds": 0.01}``.
    """

    def __init__(
        self,
        *,
        min_observations: int = 8,
        decay: float = 0.98,
        ridge: float = 1e-3,
        overlap_norm: float = 1.0,
        fixed: dict[str, float] | None = None,
    ) -> None:
        self.fixed = dict(fixed or {})
        check_names(self.fixed, TRAINER_COEFFICIENTS, "fixed")
        if not overlap_norm >= 1.0:
            raise ConfigError(f"overlap_norm is {overlap_norm}: it must be at least 1")
        self.min_observations = min_observations
        self.overlap_norm = overlap_norm
        self._num_observations = 0
        self._fits = {
            stage: SubStageFit(
                decay,
                ridge,
                {n: self.fixed[f"{stage}.{n}"] for n in SUB_STAGE_COEFFICIENTS if f"{stage}.{n}" in self.fixed},
            )
            for stage in SubStage
        }
        comm = {i: self.fixed[name] for i, name in enumerate(COMM_COEFFICIENTS) if name in self.fixed}
        self._comm = DecayedLeastSquares(len(COMM_COEFFICIENTS), decay, ridge, comm)
        self._refresh()

    def _refresh(self) -> None:
        known = {s: fit.cost for s, fit in self._fits.items() if fit.num_observations or fit.stated}
        costs = {s: fit.cost for s, fit in self._fits.items()}
        for stage in SubStage:
            if stage not in known and known:
                source = min(known, key=lambda other: abs(PASSES[other] - PASSES[stage]))
                ratio, cost = PASSES[stage] / PASSES[source], known[source]
                costs[stage] = SubStageCost(cost.base_seconds * ratio, cost.ktoken_seconds * ratio, cost.exponent)
        self.sub_stage_costs: dict[SubStage, SubStageCost] = costs
        self._table = {
            str(s): (c.base_seconds, c.ktoken_seconds / 1000.0**c.exponent, c.exponent) for s, c in costs.items()
        }
        self._forget_costs()

    @property
    def ready(self) -> bool:
        """Whether enough windows were seen, or every sub-stage is stated."""
        return self._num_observations >= self.min_observations or all(fit.stated for fit in self._fits.values())

    def chunk_costs(self, chunks: Chunks) -> list[float]:
        """Seconds of each chunk on one replica."""
        table = self._table
        costs = []
        for stage, tokens in chunks:
            base, slope, exponent = table[stage]
            costs.append(base + slope * tokens**exponent)
        return costs

    def comm_seconds(self, num_bytes: float) -> float:
        """α_comm + β_comm · bytes; 0 for no bytes."""
        return self._comm.predict((1.0, num_bytes)) if num_bytes else 0.0

    def observe(self, usage: TrainerWork, seconds: float) -> None:
        """Learn from one replica. A window over several sub-stages is shared out as currently predicted."""
        if not usage.chunks or not 0.0 < seconds < float("inf"):
            return
        compute = self._learn_comm(usage, seconds)
        costs = self.chunk_costs(usage.chunks)
        total = sum(costs)
        if total <= 0.0:
            costs = [PASSES[stage] * max(tokens, 1) for stage, tokens in usage.chunks]
            total = sum(costs)
        changed = False
        for stage in sorted({stage for stage, _ in usage.chunks}):
            share = sum(c for c, (s, _) in zip(costs, usage.chunks, strict=True) if s is stage) / total
            changed |= self._fits[stage].observe((t for s, t in usage.chunks if s is stage), compute * share)
        self._num_observations += 1
        if changed:
            self._refresh()

    def _learn_comm(self, usage: TrainerWork, seconds: float) -> float:
        """Seconds of the window that computing took; what is left over teaches the communication terms."""
        if not usage.comm_bytes:
            return seconds
        compute = sum(self.chunk_costs(usage.chunks))
        norm = self.overlap_norm
        if 0.0 < compute < seconds:
            left = seconds - compute
            if 1.0 < norm < float("inf"):
                left = float((seconds**norm - compute**norm) ** (1.0 / norm))
            self._comm.observe((1.0, usage.comm_bytes), left if norm < float("inf") else seconds)
        predicted = overlap(compute, self.comm_seconds(usage.comm_bytes), norm)
        return seconds * compute / predicted if predicted > 0.0 and compute > 0.0 else seconds

    def parameters(self) -> Mapping[str, Any]:
        """Coefficients by name, and the state of the fits."""
        return {
            "coefficients": {
                f"{stage}.{name}": getattr(cost, name)
                for stage, cost in self.sub_stage_costs.items()
                for name in SUB_STAGE_COEFFICIENTS
            },
            "num_observations": self._num_observations,
            "fits": {str(stage): fit.state() for stage, fit in self._fits.items()},
            "comm": self._comm.state(),
        }

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        self._num_observations = int(parameters["num_observations"])
        for stage, state in parameters["fits"].items():
            self._fits[SubStage(stage)].load_state(state)
        self._comm.load_state(parameters["comm"])
        self._refresh()
