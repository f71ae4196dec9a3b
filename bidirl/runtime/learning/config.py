"""Settings of GRPO, and which trainer sub-stages they need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError

Aggregation = Literal["token_mean", "sequence_mean"]
Proximal = Literal["behaviour", "recomputed"]
Overlong = Literal["keep", "mask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoConfig:
    """How a batch of groups becomes one gradient.

    Attributes:
        clip_low: a probability ratio below ``1 - clip_low`` gets no gradient when the advantage is negative.
        clip_high: a ratio above ``1 + clip_high`` gets no gradient when the advantage is positive; may exceed
            ``clip_low`` (clip-higher).
        aggregation: ``token_mean`` divides the sum over tokens by all trainable response tokens of the batch;
            ``sequence_mean`` averages within each response and divides by the number of trainable responses.
        kl_coefficient: weight of the divergence from the reference model; 0 leaves the reference model out.
        normalise_std: divide a group's centred rewards by their sample standard deviation.
        proximal: the policy that the ratio is clipped against. ``behaviour``: the log-probs that the rollout engine
            returned. ``recomputed``: the trainer's own before the update, with an importance weight for the
            difference to the behaviour policy (decoupled PPO); costs the ``old_logprob`` sub-stage.
        importance_cap: upper limit of that importance weight; ``None`` leaves it unlimited. Only with ``recomputed``.
        overlong: ``mask`` keeps responses that ran into the length limit out of the loss; their rewards still count
            in the mean of their group.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregation: Aggregation = "token_mean"
    kl_coefficient: float = 0.0
    normalise_std: bool = True
    proximal: Proximal = "behaviour"
    importance_cap: float | None = None
    overlong: Overlong = "keep"

    def __post_init__(self) -> None:
        """Refuse settings that are out of range or that would select nothing.

        Raises:
            ConfigError: naming the key and the fix.
        """
        _require("clip_low", self.clip_low, 0.0 < self.clip_low < 1.0, "between 0 and 1, for example 0.2")
        _require("clip_high", self.clip_high, 0.0 < self.clip_high < math.inf, "positive, for example 0.2")
        _require("kl_coefficient", self.kl_coefficient, 0.0 <= self.kl_coefficient < math.inf, "0 or positive")
        _require_choice("aggregation", self.aggregation, get_args(Aggregation))
        _require_choice("proximal", self.proximal, get_args(Proximal))
        _require_choice("overlong", self.overlong, get_args(Overlong))
        if self.importance_cap is None:
            return
        if self.proximal == "behaviour":
            raise ConfigError(
                f"importance_cap: {self.importance_cap} has no effect with proximal=behaviour; "
                "set proximal to recomputed or remove importance_cap"
            )
        _require("importance_cap", self.importance_cap, 0.0 < self.importance_cap < math.inf, "positive, such as 2.0")


def sub_stages(config: GrpoConfig) -> tuple[SubStage, ...]:
    """Sub-stages that a batch passes under ``config``, in order."""
    stages: list[SubStage] = []
    if config.proximal == "recomputed":
        stages.append(SubStage.OLD_LOGPROB)
    if config.kl_coefficient > 0:
        stages.append(SubStage.REF_LOGPROB)
    return (*stages, SubStage.ACTOR_UPDATE)


def _require(key: str, value: float, holds: bool, expected: str) -> None:
    if not holds:
        raise ConfigError(f"{key}: {value!r} is out of range; it must be {expected}")


def _require_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{key}: {value!r} is not known; use one of {', '.join(choices)}")
