"""A model that trainers compute with: chunks, log-probs, weights in and out. Knows no engine and no other worker."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bidirl.core.chunks import Chunk, ChunkResult, SubStage
from bidirl.runtime.language_models.loading import load_causal_lm
from bidirl.runtime.learning import GrpoConfig, PreparedBatch, TrainSequence, sub_stages
from bidirl.runtime.learning.logprobs import sequence_logprobs
from bidirl.runtime.learning.loss import actor_loss
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.ray.weights import WeightLayout, Weights, probe_tokens

LogProbs = list[torch.Tensor]


class TrainerModel:
    """A transformers model with its layout in the flat buffer, and the reference model where the loss needs one."""

    def __init__(self, config: RayConfig, grpo: GrpoConfig, device: torch.device) -> None:
        self._config = config
        self._grpo = grpo
        self.device = device
        self.module: Any = _load(config, device)
        self.reference: Any = _load(config, device).requires_grad_(False) if grpo.kl_coefficient > 0 else None
        self.parameters: list[torch.nn.Parameter] = list(self.module.parameters())
        self.layout = _layout(self.module, config.trainer_dtype)
        self.shapes = [torch.Size(shape) for shape in self.layout.shapes.values()]

    def sequence_sets(self, sequences: Sequence[TrainSequence]) -> list[Sequence[TrainSequence]]:
        """What runs as one forward pass: the whole chunk, or in exact mode each sequence alone."""
        if self._config.gradient_merge == "exact":
            return [[sequence] for sequence in sequences]
        return [sequences]

    def logprobs(self, chunk: Chunk, batch: PreparedBatch, model: Callable[..., Any] | None = None) -> ChunkResult:
        """A log-prob sub-stage: float32 arrays, one per sequence of the chunk."""
        if chunk.sub_stage is SubStage.REF_LOGPROB:
            model = self.reference
        values: list[NDArray[np.float32]] = []
        with torch.no_grad():
            for sequences in self.sequence_sets(batch.select(chunk.sequences)):
                found = sequence_logprobs(model or self.module, sequences, device=self.device)
                values += [v.float().cpu().numpy() for v in found]
        return ChunkResult(chunk.chunk_id, payload=values)

    def actor_update(
        self,
        chunk: Chunk,
        batch: PreparedBatch,
        inputs: Sequence[ChunkResult],
        backward: Callable[[torch.Tensor], None],
        model: Callable[..., Any] | None = None,
    ) -> ChunkResult:
        """The actor sub-stage: ``backward`` is called with each loss that is connected to the parameters."""
        old, ref = self._inputs(inputs)
        totals: dict[str, float] = {}
        start = 0
        for sequences in self.sequence_sets(batch.select(chunk.sequences)):
            part = slice(start, start + len(sequences))
            start = part.stop
            loss, metrics = actor_loss(
                model or self.module,
                sequences,
                batch.denominators,
                self._grpo,
                None if old is None else old[part],
                None if ref is None else ref[part],
                device=self.device,
            )
            if loss.requires_grad:
                backward(loss)
            for name, value in metrics.items():
                totals[name] = totals.get(name, 0.0) + value
        return ChunkResult(chunk.chunk_id, metrics=totals)

    def export(self, version: int) -> Weights:
        """A copy of the weights in one flat buffer, with the probe's log-probs under them."""
        data = np.empty(self.layout.num_bytes, np.uint8)
        flat = torch.from_numpy(data).view(getattr(torch, self.layout.dtype))
        torch.cat([p.detach().reshape(-1).to("cpu", flat.dtype) for p in self.parameters], out=flat)
        return Weights(version, self.layout, data, self.probe())

    def load(self, weights: Weights) -> None:
        """Copy the weights of another trainer into this model."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            flat = torch.from_numpy(weights.data).view(getattr(torch, weights.layout.dtype))
        with torch.no_grad():
            sizes = [shape.numel() for shape in self.shapes]
            for parameter, part in zip(self.parameters, flat.split(sizes), strict=True):
                parameter.copy_(part.view(parameter.shape))

    def probe(self) -> NDArray[np.float32]:
        """Log-probs of the probe's tokens after the first."""
        ids = torch.as_tensor(probe_tokens(self.module.config.vocab_size).astype(np.int64), device=self.device)[None]
        with torch.no_grad():
            logits = self.module(input_ids=ids, use_cache=False).logits[0, :-1].float()
        return torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0].cpu().numpy()

    def _inputs(self, inputs: Sequence[ChunkResult]) -> tuple[LogProbs | None, LogProbs | None]:
        """Old and reference log-probs, which arrive in sub-stage order."""
        stages = sub_stages(self._grpo)[:-1]
        found = {
            stage: [torch.as_tensor(np.array(values), device=self.device) for values in result.payload]
            for stage, result in zip(stages, inputs, strict=True)
        }
        return found.get(SubStage.OLD_LOGPROB), found.get(SubStage.REF_LOGPROB)


def _load(config: RayConfig, device: torch.device) -> Any:
    # Evaluation mode: dropout would make the trainer's log-probs another policy's.
    return load_causal_lm(config.model, config.trainer_dtype).to(device).eval()


def _layout(module: torch.nn.Module, dtype: str) -> WeightLayout:
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    aliases = {
        name: names[id(parameter)]
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if name != names[id(parameter)]
    }
    return WeightLayout(dtype, {name: tuple(p.shape) for name, p in module.named_parameters()}, aliases)
