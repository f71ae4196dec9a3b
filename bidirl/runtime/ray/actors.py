"""The classes that run as Ray actors. Plain classes: importing this module needs no framework.

Everything heavy is imported after :func:`enter_worker_process` has set the environment.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bidirl.core.chunks import Chunk, ChunkResult
from bidirl.core.cluster import RolloutReport
from bidirl.core.errors import WorkerError
from bidirl.core.groups import Group
from bidirl.runtime.learning import GrpoConfig, PreparedBatch
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.ray.hot_switch import hot_switch
from bidirl.runtime.ray.process import enter_worker_process
from bidirl.runtime.ray.weights import Weights


class RolloutActor:
    """Holds one vLLM engine. An async actor: calls overlap."""

    def __init__(self, config: RayConfig, name: str, devices: Sequence[int], cores: Sequence[int]) -> None:
        enter_worker_process(config, devices, cores, None)
        from bidirl.runtime.ray.rollout_engine import RolloutEngine

        self._switch = hot_switch(config)
        self._engine = RolloutEngine(config, name, len(devices))

    async def start(self) -> tuple[int, ...]:
        """Start the engine; returns the process ids behind this worker."""
        return (os.getpid(), *await self._engine.start())

    async def generate(self, call_id: int, group: Group) -> tuple[RolloutReport, float]:
        """See :meth:`RolloutEngine.generate`; with the seconds that it took here."""
        began = time.monotonic()
        return await self._engine.generate(call_id, group), time.monotonic() - began

    async def interrupt(self, call_ids: Sequence[int]) -> None:
        """See :meth:`RolloutEngine.interrupt`."""
        await self._engine.interrupt(call_ids)

    async def load_weights(self, weights: Weights) -> int:
        """Load weights and return the version that the probe confirmed."""
        if self._engine.version == weights.version:
            return weights.version
        return await self._engine.load_weights(weights)

    async def sleep(self) -> None:
        """Leave the device."""
        await self._switch.sleep_rollouter(self._engine)

    async def wake(self, weights: Weights | None) -> None:
        """Come back; with ``weights`` (those that it served) where sleeping lost or may have damaged them."""
        await self._switch.wake_rollouter(self._engine)
        if weights is not None and not self._switch.keeps_weights:
            await self._engine.load_weights(weights)
        elif weights is not None and self._switch.exclusive:
            await self._engine.check_probe(weights)

    async def close(self) -> None:
        """Stop vLLM's processes."""
        await self._engine.close()


class TrainerActor:
    """Holds a primary trainer (``rendezvous`` given) or an auxiliary one."""

    def __init__(
        self,
        config: RayConfig,
        grpo: GrpoConfig,
        devices: Sequence[int],
        cores: Sequence[int],
        rendezvous: tuple[int, int, int] | None,
    ) -> None:
        enter_worker_process(config, devices, cores, rendezvous)
        self._config, self._grpo, self._rendezvous = config, grpo, rendezvous
        self._switch = hot_switch(config)
        self._trainer: Any = None
        self._batch: tuple[int, PreparedBatch] | None = None

    def start(self) -> tuple[int, ...]:
        """Build the trainer; returns the process id behind this worker."""
        import torch

        from bidirl.runtime.ray.trainer_engine import AuxiliaryTrainer, PrimaryTrainer

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        device = torch.device("cpu" if self._config.accelerator == "cpu" else "cuda:0")
        if self._rendezvous is None:
            self._trainer = AuxiliaryTrainer(self._config, self._grpo, device)
        else:
            rank, num_ranks, _ = self._rendezvous
            self._trainer = PrimaryTrainer(self._config, self._grpo, device, rank, num_ranks)
        return (os.getpid(),)

    def begin_batch(self, step: int, version: int, batch: PreparedBatch) -> None:
        """Take the batch of optimizer step ``step``."""
        self._trainer.begin_batch(version)
        self._batch = (step, batch)

    def run(
        self,
        step: int,
        version: int,
        batch: PreparedBatch | None,
        chunks: Sequence[Chunk | None],
        inputs: Sequence[Sequence[ChunkResult]],
    ) -> list[tuple[ChunkResult, float]]:
        """Run chunks of the batch of ``step``; an auxiliary is given the batch with its first chunks."""
        if batch is not None and (self._batch is None or self._batch[0] != step):
            self.begin_batch(step, version, batch)
        if self._batch is None or self._batch[0] != step:
            raise WorkerError(f"chunks of step {step} reached a trainer that was not given its batch")
        return self._trainer.run(self._batch[1], chunks, inputs)

    def ping(self) -> None:
        """Answers once everything that was asked before is done."""

    def take_gradients(self) -> Any:
        """An auxiliary's gradient sum, which leaves it."""
        return self._trainer.take_gradients()

    def add_gradients(self, flat: Any) -> None:
        """Add an auxiliary's gradient sum to the primary's."""
        if flat is not None:
            self._trainer.add_gradients(flat)

    def step(self) -> dict[str, float]:
        """The optimizer step."""
        start = time.monotonic()
        return {**self._trainer.step(), "timing_s/optimizer": time.monotonic() - start}

    def digest(self) -> str:
        """SHA-256 of all parameters; every rank must call it."""
        return hashlib.sha256(self._trainer.export().data).hexdigest()

    def export(self, version: int) -> Any:
        """The weights, in Ray's object store (rank 0; the other ranks only take part)."""
        if version != self._trainer.version:
            raise WorkerError(f"version {version} was to be exported, the trainer holds {self._trainer.version}")
        weights = self._trainer.export()
        return weights if self._rendezvous is not None and self._rendezvous[0] == 0 else None

    def save(self, directory: Path) -> None:
        """Write the learner's state; every rank must call it."""
        self._trainer.save(directory)

    def restore(self, directory: Path) -> int:
        """Read the learner's state; every rank must call it. Returns the version."""
        version: int = self._trainer.restore(directory)
        return version

    def load_weights(self, weights: Weights) -> int:
        """Give an auxiliary the primaries' weights; returns the version that it holds."""
        return self._trainer.load(weights)

    def sleep(self) -> None:
        """Leave the device."""
        self._switch.sleep_trainer(self._trainer)

    def wake(self, weights: Weights | None) -> None:
        """Come back; ``weights`` are those that it must still hold."""
        self._switch.wake_trainer(self._trainer)
        if weights is not None and self._switch.exclusive:
            self._trainer.check_probe(weights)

    def close(self) -> None:
        """Leave the process group."""
        self._trainer = None
