"""What things take in a simulated world: one frozen record, from constants (roofline) or measured on a real run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import isfinite
from typing import Any

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.core.work import RolloutUsage, SwitchCost
from bidirl.models.trainer_base import SubStageCost


@dataclass(frozen=True, slots=True)
class RolloutTimings:
    """One rollout replica: seconds = τ_pre·prefilled + Σ over decode steps (τ_dec + β_tok·n + β_hist·H).

    Attributes:
        prefill_seconds: τ_pre, per prefilled token; decoding stalls meanwhile.
        step_seconds: τ_dec, per decode step.
        token_seconds: β_tok, per running sequence and step.
        context_seconds: β_hist, per context token held and step.
    """

    prefill_seconds: float = 0.0
    step_seconds: float = 0.0
    token_seconds: float = 0.0
    context_seconds: float = 0.0

    def seconds(self, usage: RolloutUsage) -> float:
        """Busy seconds of exactly this usage."""
        return (
            self.prefill_seconds * usage.prefill_tokens
            + self.step_seconds * usage.decode_steps
            + self.token_seconds * usage.decode_tokens
            + self.context_seconds * usage.context_token_steps
        )

    def scaled(self, factor: float) -> RolloutTimings:
        """All coefficients times ``factor``."""
        values = (self.prefill_seconds, self.step_seconds, self.token_seconds, self.context_seconds)
        return RolloutTimings(*(value * factor for value in values))


@dataclass(frozen=True, slots=True)
class SimTimings:
    """All durations of a simulated cluster, in seconds. The default is a world in which nothing takes time.

    Attributes:
        rollout: coefficients of one rollout replica.
        old_logprob, ref_logprob, actor_update: a chunk of t tokens on one trainer replica, τ + α·(t/1000)^r.
        rollouter_on_trainpool, trainer_on_rollpool: C_in and C_out of one switch, C_grad of one merge.
        begin_batch_seconds: handing a batch to the trainers (advantages, denominators, transfer).
        optimizer_step_seconds: the optimizer step with its gradient reduction.
        export_seconds: making a version available; the trainers are busy.
        load_weights_seconds: receiving a version; the rollouter is busy.
        generate_overhead_seconds: per ``generate`` call, before the engine sees it; the engine is not busy.
        train_overhead_seconds: per ``train_chunks`` call, on top of its chunks.
        startup_seconds: starting all workers.
        rollout_noise: σ of a lognormal factor, drawn per rollouter and loaded version.
        trainer_noise: σ of a lognormal factor, drawn per version and chunk.
        switch_noise: σ of a lognormal factor, drawn per switch and per merge.
        source: where the numbers come from.
    """

    rollout: RolloutTimings = field(default_factory=RolloutTimings)
    old_logprob: SubStageCost = field(default_factory=SubStageCost)
    ref_logprob: SubStageCost = field(default_factory=SubStageCost)
    actor_update: SubStageCost = field(default_factory=SubStageCost)
    rollouter_on_trainpool: SwitchCost = field(default_factory=lambda: SwitchCost(0.0, 0.0))
    trainer_on_rollpool: SwitchCost = field(default_factory=lambda: SwitchCost(0.0, 0.0))
    begin_batch_seconds: float = 0.0
    optimizer_step_seconds: float = 0.0
    export_seconds: float = 0.0
    load_weights_seconds: float = 0.0
    generate_overhead_seconds: float = 0.0
    train_overhead_seconds: float = 0.0
    startup_seconds: float = 0.0
    rollout_noise: float = 0.0
    trainer_noise: float = 0.0
    switch_noise: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        for key, value in _numbers("", asdict(self)):
            if not isfinite(value) or value < 0:
                raise ConfigError(f"timings{key} is {value}: it must be finite and at least 0")

    def chunk_seconds(self, sub_stage: SubStage, tokens: int) -> float:
        """One chunk on one trainer replica, without noise."""
        cost: SubStageCost = getattr(self, sub_stage.value)
        return cost.seconds(tokens)

    def switch(self, direction: Direction) -> SwitchCost:
        """Switch costs of one direction."""
        cost: SwitchCost = getattr(self, direction.value)
        return cost

    def to_mapping(self) -> dict[str, Any]:
        """JSON-serialisable, read back by :func:`timings_from_mapping`."""
        return asdict(self)


_PARTS: dict[str, type] = {
    "rollout": RolloutTimings,
    **{str(stage): SubStageCost for stage in SubStage},
    **{str(direction): SwitchCost for direction in Direction},
}


def _numbers(path: str, value: Any) -> list[tuple[str, float]]:
    if isinstance(value, Mapping):
        return [item for key, inner in value.items() for item in _numbers(f"{path}.{key}", inner)]
    return [] if isinstance(value, str) else [(path, value)]


def _build(cls: type, values: Any, path: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path} is {values!r}: it must be a mapping with {', '.join(f.name for f in fields(cls))}")
    known = [f.name for f in fields(cls)]
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"{path}.{key} does not exist: use one of {', '.join(known)}")
        if key not in _PARTS and key != "source" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ConfigError(f"{path}.{key} is {value!r}: it must be a number")
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{path} lacks a value ({error}): it needs {', '.join(known)}") from None


def timings_from_mapping(values: Mapping[str, Any], base: SimTimings | None = None) -> SimTimings:
    """Timings from plain data; keys that are left out keep the values of ``base``.

    Raises:
        ConfigError: naming the key that is unknown, or not a finite number from 0 up.
    """
    parts = {key: _build(cls, values[key], f"timings.{key}") for key, cls in _PARTS.items() if key in values}
    _build(SimTimings, {**values, **parts}, "timings")
    return replace(base or SimTimings(), **{**values, **parts})
