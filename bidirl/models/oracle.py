"""Stage-time models with exact constants, for simulation: they never learn and are always ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bidirl.core.chunks import SubStage
from bidirl.core.work import RolloutUsage, TrainerWork
from bidirl.models.rollout_base import RolloutModel
from bidirl.models.trainer_base import Chunks, SubStageCost, TrainerModel


class OracleRolloutModel(RolloutModel):
    """seconds = τ_pre·prefill + τ_dec·steps + β_tok·decode_tokens + β_hist·context_token_steps with given constants.

    Args:
        prefill_seconds: τ_pre, per prefilled token.
        step_seconds: τ_dec, per decode step.
        token_seconds: β_tok, per decoded token (running sequence and step).
        context_seconds: β_hist, per context token held and step.
    """

    def __init__(
        self, *, prefill_seconds: float, step_seconds: float, token_seconds: float = 0.0, context_seconds: float = 0.0
    ) -> None:
        self.prefill_seconds = prefill_seconds
        self.step_seconds = step_seconds
        self.token_seconds = token_seconds
        self.context_seconds = context_seconds

    @property
    def ready(self) -> bool:
        """Always."""
        return True

    def predict_usage(self, usage: RolloutUsage) -> float:
        """Seconds that one replica needs for exactly this usage."""
        return (
            self.prefill_seconds * usage.prefill_tokens
            + self.step_seconds * usage.decode_steps
            + self.token_seconds * usage.decode_tokens
            + self.context_seconds * usage.context_token_steps
        )

    def observe(self, usage: RolloutUsage, seconds: float) -> None:
        """Learns nothing."""

    def parameters(self) -> Mapping[str, Any]:
        """The four constants."""
        names = ("prefill_seconds", "step_seconds", "token_seconds", "context_seconds")
        return {name: getattr(self, name) for name in names}

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        for name in self.parameters():
            setattr(self, name, float(parameters[name]))


class OracleTrainerModel(TrainerModel):
    """Chunk costs τ_s + α_s·(tokens/1k)^r_s with given constants, list-scheduled over replicas.

    Args:
        old_logprob, ref_logprob, actor_update: cost of a chunk of each sub-stage.
        comm_base_seconds: α_comm.
        comm_byte_seconds: β_comm.
        overlap_norm: p of the p-norm; 1 is no overlap, ``inf`` full overlap.
    """

    def __init__(
        self,
        *,
        actor_update: SubStageCost,
        old_logprob: SubStageCost | None = None,
        ref_logprob: SubStageCost | None = None,
        comm_base_seconds: float = 0.0,
        comm_byte_seconds: float = 0.0,
        overlap_norm: float = 1.0,
    ) -> None:
        self.sub_stage_costs = {
            SubStage.OLD_LOGPROB: old_logprob or SubStageCost(),
            SubStage.REF_LOGPROB: ref_logprob or SubStageCost(),
            SubStage.ACTOR_UPDATE: actor_update,
        }
        self.comm_base_seconds = comm_base_seconds
        self.comm_byte_seconds = comm_byte_seconds
        self.overlap_norm = overlap_norm

    @property
    def ready(self) -> bool:
        """Always."""
        return True

    def chunk_costs(self, chunks: Chunks) -> list[float]:
        """Seconds of each chunk on one replica."""
        costs = self.sub_stage_costs
        return [costs[stage].seconds(tokens) for stage, tokens in chunks]

    def comm_seconds(self, num_bytes: float) -> float:
        """α_comm + β_comm · bytes; 0 for no bytes."""
        return self.comm_base_seconds + self.comm_byte_seconds * num_bytes if num_bytes else 0.0

    def observe(self, usage: TrainerWork, seconds: float) -> None:
        """Learns nothing."""

    def parameters(self) -> Mapping[str, Any]:
        """The constants."""
        return {
            "sub_stages": {
                str(s): [c.base_seconds, c.ktoken_seconds, c.exponent] for s, c in self.sub_stage_costs.items()
            },
            "comm_base_seconds": self.comm_base_seconds,
            "comm_byte_seconds": self.comm_byte_seconds,
            "overlap_norm": self.overlap_norm,
        }

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""
        self.sub_stage_costs = {SubStage(s): SubStageCost(*values) for s, values in parameters["sub_stages"].items()}
        self.comm_base_seconds = float(parameters["comm_base_seconds"])
        self.comm_byte_seconds = float(parameters["comm_byte_seconds"])
        self.overlap_norm = float(parameters["overlap_norm"])
        self._forget_costs()
