"""Settings of the real runtime. Plain data: importing this module needs neither Ray, torch, vLLM nor DeepSpeed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from bidirl.core.errors import ConfigError

Accelerator = Literal["cpu", "cuda"]
Dtype = Literal["float32", "bfloat16", "float16"]
GradientMerge = Literal["fast", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig:
    """What the workers of a :class:`~bidirl.runtime.ray.cluster.RayCluster` need to know.

    Attributes:
        model: directory of a Hugging Face model, readable by transformers and by vLLM.
        accelerator: what a device is: ``cpu``, ``cores_per_device`` cores; ``cuda``, one GPU.
        cores_per_device: cores of one CPU device; without effect on ``cuda``.
        rollout_dtype: weights and activations of the rollout engines.
        trainer_dtype: weights and activations of the trainers.
        max_model_len: longest prompt plus response, in tokens.
        max_response_tokens: longest response, in tokens; a resumed response has the rest of it.
        max_num_seqs: sequences that one rollout engine runs at once.
        kv_cache_gib: key-value cache of one rollout engine, in GiB.
        zero_stage: DeepSpeed ZeRO stage, 0 to 3.
        learning_rate: of AdamW.
        adam_beta1: of AdamW.
        adam_beta2: of AdamW.
        adam_epsilon: of AdamW.
        weight_decay: of AdamW.
        grad_clip: largest gradient norm; 0 does not clip.
        gradient_merge: ``fast`` accumulates each replica's gradients in float32. ``exact`` computes each sequence alone
            and sums on a fixed grid in float64: the same bits wherever, however and in whatever order chunks ran.
        warmup_steps: optimizer steps over which the learning rate rises linearly.
        object_store_gib: Ray's object store, in GiB; it holds two versions of the weights and the open batch.
        sleep_level: of vLLM on ``cuda``: 1 keeps the weights in host memory, 2 discards them.
        probe_tolerance: largest allowed mean difference of the probe's log-probs between trainer and rollout engine, in
            nats; ``None`` allows 0.001 between float32 engines and 0.25 elsewhere.
        worker_start_timeout_seconds: limit on starting all workers.
        verb_timeout_seconds: limit on any other verb.
        reward_timeout_seconds: limit on the rewards of one group; a group that takes longer is dropped.
        seed: of sampling.
    """

    model: str
    accelerator: Accelerator = "cpu"
    cores_per_device: int = 1
    rollout_dtype: Dtype = "float32"
    trainer_dtype: Dtype = "float32"
    max_model_len: int = 256
    max_response_tokens: int = 64
    max_num_seqs: int = 32
    kv_cache_gib: float = 1.0
    zero_stage: int = 0
    learning_rate: float = 1e-4
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    gradient_merge: GradientMerge = "fast"
    warmup_steps: int = 0
    object_store_gib: float = 2.0
    sleep_level: int = 1
    probe_tolerance: float | None = None
    worker_start_timeout_seconds: float = 180.0
    verb_timeout_seconds: float = 600.0
    reward_timeout_seconds: float = 120.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigError: naming the key and the fix.
        """
        for key, choices in (
            ("accelerator", get_args(Accelerator)),
            ("rollout_dtype", get_args(Dtype)),
            ("trainer_dtype", get_args(Dtype)),
            ("gradient_merge", get_args(GradientMerge)),
            ("zero_stage", (0, 1, 2, 3)),
            ("sleep_level", (1, 2)),
        ):
            if getattr(self, key) not in choices:
                raise ConfigError(f"{key}: {getattr(self, key)!r} is not known; use one of {_listed(choices)}")
        positive = (
            "cores_per_device max_model_len max_response_tokens max_num_seqs kv_cache_gib learning_rate adam_epsilon "
            "object_store_gib worker_start_timeout_seconds verb_timeout_seconds reward_timeout_seconds"
        )
        for key in positive.split():
            _require(self, key, 0 < getattr(self, key) < math.inf, "positive")
        for key in ("grad_clip", "weight_decay", "warmup_steps", "seed"):
            _require(self, key, getattr(self, key) >= 0, "0 or positive")
        for key in ("adam_beta1", "adam_beta2"):
            _require(self, key, 0 <= getattr(self, key) < 1, "at least 0 and below 1")
        if self.max_response_tokens >= self.max_model_len:
            raise ConfigError(
                f"max_response_tokens: {self.max_response_tokens} leaves no room for a prompt in max_model_len "
                f"{self.max_model_len}; lower it or raise max_model_len"
            )
        if self.gradient_merge == "exact" and self.zero_stage == 3:
            raise ConfigError("gradient_merge: exact needs whole parameters on every rank; use zero_stage 0, 1 or 2")
        if self.trainer_dtype == "float16" and not self.zero_stage:
            raise ConfigError(
                "trainer_dtype: float16 needs a ZeRO stage (DeepSpeed's plain one is not readable); use zero_stage 1"
            )
        if not (Path(self.model) / "config.json").is_file():
            raise ConfigError(
                f"model: {self.model} is not a model directory (it has no config.json); "
                "give the path of one, or build one with 'bidirl model'"
            )

    @property
    def tolerance(self) -> float:
        """Largest allowed mean probe difference, in nats."""
        if self.probe_tolerance is not None:
            return self.probe_tolerance
        return 1e-3 if self.rollout_dtype == self.trainer_dtype == "float32" else 0.25


def _require(config: RayConfig, key: str, holds: bool, expected: str) -> None:
    if not holds:
        raise ConfigError(f"{key}: {getattr(config, key)!r} is out of range; it must be {expected}")


def _listed(choices: tuple[Any, ...]) -> str:
    return ", ".join(str(choice) for choice in choices)
