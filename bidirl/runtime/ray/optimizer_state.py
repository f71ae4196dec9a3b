"""What a DeepSpeed engine knows about a parameter in float32, whole and under every ZeRO stage.

DeepSpeed's own checkpoints are pickles, one per rank and stage; read and written through here the state is plain
tensors, the same ones under any stage and any number of ranks.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

Part = Literal["parameters", "exp_avg", "exp_avg_sq"]
"""The master copy of the parameters, and AdamW's two moments."""


class OptimizerState:
    """Reads and writes one engine. The moments exist after the engine's first step."""

    def __init__(self, engine: Any, zero_stage: int) -> None:
        self._engine = engine
        self._zero_stage = zero_stage
        self._adam = getattr(engine.optimizer, "optimizer", engine.optimizer)

    @property
    def adam_steps(self) -> int:
        """Steps by which AdamW corrects the bias of its moments."""
        return max((int(state["step"]) for state in self._adam.state.values()), default=0)

    @adam_steps.setter
    def adam_steps(self, steps: int) -> None:
        for state in self._adam.state.values():
            state["step"].fill_(steps)

    def read(self, parameter: torch.nn.Parameter, part: Part) -> torch.Tensor:
        """A whole float32 tensor in the parameter's shape; every rank must call it."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if not self._partitioned(parameter):
            return parameter.detach() if part == "parameters" else self._adam.state[parameter][part]
        if part == "parameters":
            return safe_get_full_fp32_param(parameter)
        return safe_get_full_optimizer_state(parameter, part)

    def write(self, parameter: torch.nn.Parameter, part: Part, value: torch.Tensor) -> None:
        """Put a whole float32 tensor in the place of what ``read`` returns, and of what the model computes with."""
        value = value.to(parameter.device)
        with torch.no_grad():
            if self._zero_stage == 3:
                self._write_slice(parameter, part, value)
            elif self._partitioned(parameter):
                self._write_fragment(parameter, part, value)
            elif part != "parameters":
                self._adam.state[parameter][part].copy_(value)
            if part == "parameters" and self._zero_stage < 3:
                parameter.copy_(value)

    def _partitioned(self, parameter: torch.nn.Parameter) -> bool:
        """Whether DeepSpeed keeps the state in flat buffers: always but for float32 without ZeRO."""
        return hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")

    def _write_fragment(self, parameter: torch.nn.Parameter, part: Part, value: torch.Tensor) -> None:
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        if part == "parameters":
            safe_set_full_fp32_param(parameter, value)
        else:
            safe_set_full_optimizer_state(parameter, value, part)

    def _write_slice(self, parameter: Any, part: Part, value: torch.Tensor) -> None:
        """This rank's slice, padded: DeepSpeed's own setter of whole tensors runs over the end on the last rank."""
        from deepspeed.utils import safe_set_local_fp32_param, safe_set_local_optimizer_state

        size, rank = parameter.ds_tensor.numel(), torch.distributed.get_rank()
        padded = torch.nn.functional.pad(value.flatten(), (0, size * torch.distributed.get_world_size()))
        own = padded[rank * size : (rank + 1) * size]
        if part == "parameters":
            safe_set_local_fp32_param(parameter, own)
            parameter.ds_tensor.copy_(own.view(parameter.ds_tensor.shape))
            if parameter.shape == value.shape:  # small ones stay gathered between steps
                parameter.copy_(value)
        else:
            safe_set_local_optimizer_state(parameter, own, part)
