"""The one place in which CPU and CUDA differ: how a worker leaves its device and comes back.

On CPU a switch is a hand-over of the core: the process that leaves must be idle, and keeps its memory. On CUDA the
worker that leaves frees the device's memory, and that it did is checked.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from bidirl.core.errors import ConfigError, WorkerError
from bidirl.core.topology import Topology
from bidirl.runtime.ray.config import RayConfig

_MIN_FREED = 0.5
"""Share of a worker's own weights that must become free when it sleeps."""

_MIN_HEAD_SIZE = 32


class HotSwitch(ABC):
    """Held by every worker; each method is called on the worker's own process.

    Attributes:
        exclusive: whether only one worker of a device can have its memory there, so that auxiliaries must be started
            and put to sleep before primaries start.
        keeps_weights: whether a worker that woke up still holds the weights with which it went to sleep.
    """

    exclusive: bool
    keeps_weights: bool

    @abstractmethod
    async def sleep_rollouter(self, engine: Any) -> None:
        """Leave the device; the engine must be idle."""

    @abstractmethod
    async def wake_rollouter(self, engine: Any) -> None:
        """Come back, ready for ``load_weights`` (and for work, with ``keeps_weights``)."""

    @abstractmethod
    def sleep_trainer(self, trainer: Any) -> None:
        """Leave the device."""

    @abstractmethod
    def wake_trainer(self, trainer: Any) -> None:
        """Come back with the state that was there before."""


class CoreHandOver(HotSwitch):
    """CPU: nothing to free; the core belongs to whoever computes."""

    exclusive = False
    keeps_weights = True

    async def sleep_rollouter(self, engine: Any) -> None:
        """Refuse while requests run: two workers would compute on one core."""
        if engine.num_active:
            raise WorkerError(f"the rollout engine has {engine.num_active} requests and cannot hand over its core")

    async def wake_rollouter(self, engine: Any) -> None:
        """Nothing to do."""

    def sleep_trainer(self, trainer: Any) -> None:
        """Nothing to do: a trainer that answers calls is idle."""

    def wake_trainer(self, trainer: Any) -> None:
        """Nothing to do."""


class MemoryHandOver(HotSwitch):
    """CUDA: vLLM sleep mode, DeepSpeed's state offload. Not run on the machine on which it was written."""

    exclusive = True

    def __init__(self, sleep_level: int) -> None:
        self._level = sleep_level
        self.keeps_weights = sleep_level == 1

    async def sleep_rollouter(self, engine: Any) -> None:
        """vLLM sleep; level 2 discards the weights."""
        if engine.num_active:
            raise WorkerError(f"the rollout engine has {engine.num_active} requests and cannot sleep")
        before = _free_bytes()
        await engine.sleep(self._level)
        _check_freed("the rollout engine", before, engine.weight_bytes)

    async def wake_rollouter(self, engine: Any) -> None:
        """vLLM wake-up; a level-2 sleeper holds garbage until weights are loaded."""
        await engine.wake()
        if not self.keeps_weights:
            engine.version = -1

    def sleep_trainer(self, trainer: Any) -> None:
        """Move everything to host memory and give the allocator's cache back."""
        import torch

        before = _free_bytes()
        trainer.offload()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        _check_freed("the trainer", before, trainer.model.layout.num_bytes)

    def wake_trainer(self, trainer: Any) -> None:
        """Move everything back and wait for it; the probe shows that the weights are the same."""
        import torch

        trainer.reload()
        torch.cuda.synchronize()


def hot_switch(config: RayConfig) -> HotSwitch:
    """The hand-over of the job's accelerator."""
    return CoreHandOver() if config.accelerator == "cpu" else MemoryHandOver(config.sleep_level)


def check_hardware(config: RayConfig, topology: Topology) -> None:
    """Refuse, before anything starts, what this machine cannot do.

    Raises:
        ConfigError: naming the key and the fix.
    """
    if config.accelerator == "cpu":
        _check_head_size(config)
        cores, needed = len(os.sched_getaffinity(0)), topology.num_devices * config.cores_per_device
        if needed > cores:
            raise ConfigError(
                f"cores_per_device: {topology.num_devices} devices of {config.cores_per_device} cores need {needed} "
                f"cores, this machine has {cores}; use fewer devices or fewer cores each"
            )
        return
    _check_cuda(config, topology)


def _check_head_size(config: RayConfig) -> None:
    values = json.loads((Path(config.model) / "config.json").read_text())
    heads = values.get("num_attention_heads") or 1
    head_size = values.get("head_dim") or values.get("hidden_size", _MIN_HEAD_SIZE * heads) // heads
    if head_size < _MIN_HEAD_SIZE:
        raise ConfigError(
            f"model: {config.model} has attention heads of size {head_size}; vLLM on CPU needs {_MIN_HEAD_SIZE} or more"
        )


def _check_cuda(config: RayConfig, topology: Topology) -> None:
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < topology.num_devices:
        raise ConfigError(
            f"accelerator: cuda needs {topology.num_devices} GPUs, {found} found; use fewer devices or accelerator cpu"
        )
    switching = bool(topology.auxiliary_rollouters or topology.auxiliary_trainers)
    if switching and config.zero_stage == 0:
        raise ConfigError("zero_stage: 0 has no state offload, which switching on cuda needs; use 1, 2 or 3")
    if any(len(w.devices) > 1 for w in topology.primary_trainers + topology.auxiliary_trainers):
        raise ConfigError(
            "trainer_layout_devices: a trainer is one ZeRO rank on one GPU; set it to 1 (ZeRO shards over workers)"
        )
    if switching:
        from vllm.platforms import current_platform

        if not current_platform.is_sleep_mode_available():
            raise ConfigError("accelerator: this vLLM platform has no sleep mode; host no auxiliary workers")


def _free_bytes() -> int:
    import torch

    torch.cuda.synchronize()
    return int(torch.cuda.mem_get_info()[0])


def _check_freed(who: str, before: int, own_bytes: int) -> None:
    freed = _free_bytes() - before
    if freed < _MIN_FREED * own_bytes:
        raise WorkerError(f"{who} freed {freed} bytes when it went to sleep; its weights alone take {own_bytes}")
