"""Trainers: ``PrimaryTrainer`` is one DeepSpeed rank, ``AuxiliaryTrainer`` a replica that only adds up gradients."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch

from bidirl.core.chunks import Chunk, ChunkResult, SubStage
from bidirl.core.errors import WorkerError
from bidirl.runtime.learning import GrpoConfig, PreparedBatch
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.ray.gradients import GradientSum
from bidirl.runtime.ray.learner_files import read_counts, read_part, write_counts, write_part
from bidirl.runtime.ray.optimizer_state import OptimizerState, Part
from bidirl.runtime.ray.trainer_model import TrainerModel
from bidirl.runtime.ray.weights import Weights

TimedResult = tuple[ChunkResult, float]
"""A chunk's result and the seconds that it computed."""


class Trainer(ABC):
    """Runs chunks of the batch that it was given. ``version`` is that of its weights."""

    def __init__(self, config: RayConfig, grpo: GrpoConfig, device: torch.device) -> None:
        self._config = config
        self.model = TrainerModel(config, grpo, device)
        self.gradients = GradientSum(self.model.shapes, config.gradient_merge == "exact", device)
        self.version = 0

    def begin_batch(self, version: int) -> None:
        """Drop what an abandoned batch left behind.

        Raises:
            WorkerError: if the weights are of another version.
        """
        if version != self.version:
            raise WorkerError(f"a batch for version {version} reached a trainer that holds version {self.version}")
        self.gradients.clear()

    def run(
        self, batch: PreparedBatch, chunks: Sequence[Chunk | None], inputs: Sequence[Sequence[ChunkResult]]
    ) -> list[TimedResult]:
        """Run chunks in order; ``None`` takes part in the collectives of a round without work."""
        results: list[TimedResult] = []
        for chunk, chunk_inputs in zip(chunks, inputs, strict=True):
            start = time.monotonic()
            if chunk is None:
                self._empty_pass()
            elif chunk.sub_stage is SubStage.ACTOR_UPDATE:
                results.append((self._update(batch, chunk, chunk_inputs), time.monotonic() - start))
            else:
                results.append((self.model.logprobs(chunk, batch), time.monotonic() - start))
        return results

    def check_probe(self, weights: Weights) -> None:
        """Compare the probe's log-probs with those that came with ``weights``.

        Raises:
            WorkerError: if they differ by more than the tolerance on average.
        """
        difference = weights.probe_difference(self.model.probe())
        if not difference <= self._config.tolerance:
            raise WorkerError(
                f"with weights of version {weights.version} the probe's log-probs are off by {difference:.4g} nats on "
                f"average (ray.probe_tolerance allows {self._config.tolerance:g})"
            )

    @abstractmethod
    def offload(self) -> None:
        """Move what lies on the device to host memory (CUDA only)."""

    @abstractmethod
    def reload(self) -> None:
        """Move it back (CUDA only)."""

    def _add_gradient(self, loss: torch.Tensor) -> None:
        """Add the gradient of ``loss`` to the sum, without touching ``.grad`` or any engine's hooks."""
        self.gradients.add(torch.autograd.grad(loss, self.model.parameters, allow_unused=True))

    def _smallest_pass(self, model: Any) -> torch.Tensor:
        """A scalar that is connected to all parameters, from a forward pass of two tokens."""
        ids = torch.zeros((1, 2), dtype=torch.long, device=self.model.device)
        total: torch.Tensor = model(input_ids=ids, use_cache=False).logits.sum()
        return total

    @abstractmethod
    def _update(self, batch: PreparedBatch, chunk: Chunk, inputs: Sequence[ChunkResult]) -> ChunkResult:
        """One actor chunk."""

    @abstractmethod
    def _empty_pass(self) -> None:
        """Take part in the collectives of a round without work."""


class AuxiliaryTrainer(Trainer):
    """A plain replica: it computes gradients and never takes a step."""

    def __init__(self, config: RayConfig, grpo: GrpoConfig, device: torch.device) -> None:
        super().__init__(config, grpo, device)
        self.version = -1
        self._warm_up()

    def offload(self) -> None:
        """The model and its reference."""
        self._move("cpu")

    def reload(self) -> None:
        """The model and its reference."""
        self._move(self.model.device)

    def _warm_up(self) -> None:
        """One backward pass: the first of a process takes about twice as long, which a lease's first chunk would pay.

        The primaries have calibration to warm up in.
        """
        self._add_gradient(self._smallest_pass(self.model.module))
        self.gradients.clear()

    def _move(self, device: torch.device | str) -> None:
        for module in (self.model.module, self.model.reference):
            if module is not None:
                module.to(device)

    def load(self, weights: Weights) -> int:
        """Take the primaries' weights; returns the version that it now holds, checked by the probe."""
        self.gradients.clear()
        if self.version != weights.version:
            self.version = -1
            self.model.load(weights)
            self.check_probe(weights)
            self.version = weights.version
        return self.version

    def take_gradients(self) -> Any:
        """The sum since the last call as a flat array (``None`` if nothing was added), and start a new one."""
        flat = self.gradients.flat
        self.gradients.clear()
        return None if flat is None else flat.cpu().numpy()

    def _update(self, batch: PreparedBatch, chunk: Chunk, inputs: Sequence[ChunkResult]) -> ChunkResult:
        return self.model.actor_update(chunk, batch, inputs, self._add_gradient)

    def _empty_pass(self) -> None:
        """Nothing: there are no collectives."""


class PrimaryTrainer(Trainer):
    """One rank of the DeepSpeed engine that owns the optimizer.

    In ``fast`` mode chunks go through the engine's own backward. Gradients from elsewhere (auxiliaries; in ``exact``
    mode all) enter by one backward of the linear loss Σ⟨p, g⟩, whose gradient is exactly g. The engine averages over
    its ranks, so chunk losses are multiplied by their number, and g enters on every rank alike.
    """

    def __init__(self, config: RayConfig, grpo: GrpoConfig, device: torch.device, rank: int, num_ranks: int) -> None:
        super().__init__(config, grpo, device)
        self._rank, self._num_ranks = rank, num_ranks
        self._exact = config.gradient_merge == "exact"
        self.engine = _deepspeed_engine(config, self.model, device, rank, num_ranks)
        self._state = OptimizerState(self.engine, config.zero_stage)

    def offload(self) -> None:
        """All of DeepSpeed's states, and the reference model."""
        self.engine.offload_states(pin_memory=True, non_blocking=False)
        if self.model.reference is not None:
            self.model.reference.to("cpu")

    def reload(self) -> None:
        """All of DeepSpeed's states, and the reference model."""
        self.engine.reload_states(non_blocking=False)
        if self.model.reference is not None:
            self.model.reference.to(self.model.device)

    def begin_batch(self, version: int) -> None:
        """Also clear what the engine had accumulated."""
        super().begin_batch(version)
        self.engine.zero_grad()

    def add_gradients(self, flat: Any) -> None:
        """Add an auxiliary's sum; every rank is given the same ones."""
        if not self._exact or self._rank == 0:
            self.gradients.add_flat(torch.as_tensor(flat.copy()))

    def step(self) -> dict[str, float]:
        """The one optimizer step of the batch; returns its metrics."""
        rate = self._config.learning_rate * min(1.0, (self.version + 1) / max(1, self._config.warmup_steps))
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate
        if self._exact and self._num_ranks > 1:
            torch.distributed.all_reduce(self.gradients.buffer())
        if self._config.zero_stage == 3:
            # Its next forward pass is what keeps a backward pass from overwriting the gradients of the one before.
            self.engine.backward(self._smallest_pass(self.engine) * 0.0)
        self.engine.set_gradient_accumulation_boundary(True)
        with _gathered(self._config, self.model.parameters):
            parts = self.gradients.per_parameter()
            linear = [(p * g.to(p.dtype)).sum() for p, g in zip(self.model.parameters, parts, strict=True)]
            self.engine.backward(torch.stack(linear).sum())
        norm = self._grad_norm()
        self.engine.step()
        self.engine.set_gradient_accumulation_boundary(False)
        self.gradients.clear()
        norm = float(self.engine.get_global_grad_norm() or norm)
        if norm != norm or norm == float("inf"):
            raise WorkerError(
                f"the gradient norm at version {self.version} was {norm}: the step has destroyed the weights"
            )
        self.version += 1
        return {"actor/grad_norm": norm, "actor/lr": rate}

    def export(self) -> Weights:
        """The weights of the current version; every rank must call it, each gets all of them."""
        with _gathered(self._config, self.model.parameters):
            return self.model.export(self.version)

    def save(self, directory: Path) -> None:
        """Write parameters, moments and counts (``learner_files``); every rank must call it, rank 0 writes."""
        for part in get_args(Part):
            arrays = {}
            for name, parameter in zip(self.model.layout.shapes, self.model.parameters, strict=True):
                whole = self._state.read(parameter, part)
                if self._rank == 0:
                    arrays[name] = whole.detach().float().cpu().numpy()
            if self._rank == 0:
                write_part(directory, part, arrays)
        if self._rank == 0:
            write_counts(directory, self.version, self._state.adam_steps)

    def restore(self, directory: Path) -> int:
        """Become what ``save`` wrote; returns the version. Every rank must call it.

        Raises:
            ConfigError: if the files do not fit the model.
        """
        version, adam_steps = read_counts(directory)
        parts = {part: read_part(directory, part, self.model.layout) for part in get_args(Part)}
        self.step()  # without a gradient: the engine makes room for the moments in its first step
        for part, arrays in parts.items():
            for name, parameter in zip(self.model.layout.shapes, self.model.parameters, strict=True):
                self._state.write(parameter, part, torch.from_numpy(arrays[name]))
        self._state.adam_steps = adam_steps
        self.version = version
        return version

    def _grad_norm(self) -> float:
        """Norm of whole gradients; under ZeRO the engine computes it while it steps."""
        if self._config.zero_stage:
            return 0.0
        return float(torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters if p.grad is not None]))

    def _update(self, batch: PreparedBatch, chunk: Chunk, inputs: Sequence[ChunkResult]) -> ChunkResult:
        if self._exact:
            return self.model.actor_update(chunk, batch, inputs, self._add_gradient)
        done = False

        def backward(loss: torch.Tensor) -> None:
            nonlocal done
            self.engine.backward(loss * self._num_ranks)
            done = True

        result = self.model.actor_update(chunk, batch, inputs, backward, self.engine)
        if not done:
            self._empty_pass()
        return result

    def _empty_pass(self) -> None:
        """A forward and backward of weight zero, so that collectives match on all ranks."""
        if self._exact or self._num_ranks == 1:
            return
        self.engine.backward(self._smallest_pass(self.engine) * 0.0)


def _gathered(config: RayConfig, parameters: Sequence[torch.nn.Parameter]) -> Any:
    """Whole parameters for the time of a block: they are partitioned under ZeRO stage 3."""
    if config.zero_stage < 3:
        return contextlib.nullcontext()
    from deepspeed.runtime.zero.partition_parameters import GatheredParameters

    return GatheredParameters(list(parameters))


def _deepspeed_engine(config: RayConfig, model: TrainerModel, device: torch.device, rank: int, num_ranks: int) -> Any:
    import deepspeed

    # Used by inference only, and compiling it takes a minute on a fresh machine.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    backend = "nccl" if config.accelerator == "cuda" else "gloo"
    deepspeed.init_distributed(
        dist_backend=backend, auto_mpi_discovery=False, rank=rank, world_size=num_ranks, verbose=False
    )
    optimizer = torch.optim.AdamW(
        model.parameters,
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": config.grad_clip,
        "zero_optimization": {"stage": config.zero_stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": config.trainer_dtype == "bfloat16"},
        "fp16": {"enabled": config.trainer_dtype == "float16"},
    }
    engine, *_ = deepspeed.initialize(model=model.module, optimizer=optimizer, config=settings)
    engine.eval()
    engine.set_gradient_accumulation_boundary(False)
    return engine
