"""Does one replica fit on its devices? A stated model, not a measurement; every assumption has a name."""

from __future__ import annotations

from bidirl.core.topology import Role
from bidirl.models.hardware import Gpu
from bidirl.models.llm import BYTES, Llm

TRAINER_BYTES_PER_PARAMETER = 18
"""Mixed-precision Adam: bf16 weight (2), fp32 gradient (4), fp32 master weight (4) and two moments (8)."""
LAYER_ACTIVATION_BYTES = 34
"""Per token and hidden unit of the one layer that is recomputed at a time (bf16); checkpoints are 2 per layer."""
LOGIT_SLICE_TOKENS = 1024
"""Tokens whose logits exist at once, fp32 with their gradient. An assumption of ours."""
RESIDUE_BYTES = 2e9
"""What the sleeping role and the frameworks leave on a device (contexts, allocators). An assumption of ours."""
USABLE_FRACTION = 0.95
"""Of a device's memory. An assumption of ours."""


class ReplicaMemory:
    """Bytes per device of one replica, sharded evenly over its layout.

    A trainer shards weights, gradients and optimizer state over its layout, and holds the activations of one chunk
    with activation checkpointing. A rollouter shards weights and the KV cache of one group at full length, the least
    with which it can run. What the sleeping role keeps in host memory is not checked: the testbeds' host memory is
    unknown.
    """

    def __init__(
        self, device: Gpu, model: Llm, *, max_tokens_per_chunk: int, group_size: int, max_sequence_tokens: int
    ) -> None:
        self.device = device
        self.model = model
        self.max_tokens_per_chunk = max_tokens_per_chunk
        self.kv_tokens = group_size * max_sequence_tokens

    def parts(self, role: Role, layout_devices: int) -> dict[str, float]:
        """Bytes per device by what they hold."""
        model = self.model
        if role is Role.ROLLOUTER:
            return {
                "weights": model.params * BYTES / layout_devices,
                "kv_cache": float(self.kv_tokens * model.kv_bytes_per_token) / layout_devices,
                "residue": RESIDUE_BYTES,
            }
        per_token = model.hidden * (model.layers * BYTES + LAYER_ACTIVATION_BYTES)
        return {
            "weights_gradients_optimizer": model.params * TRAINER_BYTES_PER_PARAMETER / layout_devices,
            "activations": float(self.max_tokens_per_chunk * per_token) / layout_devices,
            "logits": float(min(LOGIT_SLICE_TOKENS, self.max_tokens_per_chunk) * model.vocab * 8),
            "residue": RESIDUE_BYTES,
        }

    def shortage_bytes(self, role: Role, layout_devices: int) -> float:
        """Bytes that are missing per device; ≤ 0 if the replica fits."""
        return sum(self.parts(role, layout_devices).values()) - self.device.memory_bytes * USABLE_FRACTION
