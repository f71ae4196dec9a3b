"""Stage coefficients of (GPU, model, layout) from a roofline with achieved fractions. Simulated, never measured.

decode step    τ_dec = weight bytes / (achieved bandwidth · devices), β_hist = KV bytes per token / (same), β_tok = 0:
               decoding is memory-bound up to 128–192 running sequences (vidur: ≥ .6 of the bandwidth up to T≈192 on
               A40, between 128 and 256 on H100), so keep max_num_seqs at or below 128
prefill        2·N FLOPs per token at the prefill MFU (verl utils/flops_counter.py, forward part, attention left out)
actor update   6·N FLOPs per token at the training MFU (same rule; it counts no recompute)
log-prob pass  1/3 of the update (verl-data gsm8k/qwen2-7b-fsdp2.log: 25.2 and 24.8 s against 76.1 s)
optimizer      gradient all-reduce over the slowest link, 2·bytes/bandwidth, plus one pass over the Adam state
export, load   weight bytes over the broadcast bandwidth, then over the host link
"""

from __future__ import annotations

from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.models.hardware import Gpu
from bidirl.models.llm import BYTES, Llm
from bidirl.models.roofline_switch import switch_cost
from bidirl.models.sim_timings import RolloutTimings, SimTimings
from bidirl.models.trainer_base import SubStageCost

CHUNK_BASE_SECONDS = 0.05
"""τ_s of every sub-stage: launch, padding and data movement of one chunk. An assumption of ours, without a source."""
STEP_BASE_SECONDS = 0.0
"""Launch and scheduling overhead of a decode step, on top of the roofline. 0 keeps the published roofline figures."""
ADAM_BYTES = 28
"""Read and written per parameter by Adam in fp32: weight and two moments both ways (24), gradient (4)."""


def rollout_timings(gpu: Gpu, llm: Llm, devices: int = 1) -> RolloutTimings:
    """One rollout replica, tensor-parallel over ``devices`` (ideal: communication left out)."""
    _check_devices(devices)
    bandwidth = gpu.memory_bytes_per_second * gpu.bandwidth_fraction * devices
    return RolloutTimings(
        prefill_seconds=2.0 * llm.text_params / (gpu.peak_flops * gpu.prefill_mfu * devices),
        step_seconds=STEP_BASE_SECONDS + llm.text_params * BYTES / bandwidth,
        token_seconds=0.0,
        context_seconds=llm.kv_bytes_per_token / bandwidth,
    )


def update_cost(gpu: Gpu, llm: Llm, devices: int = 1, training_mfu: float | None = None) -> SubStageCost:
    """One actor-update chunk on a trainer replica of ``devices``."""
    _check_devices(devices)
    mfu = gpu.training_mfu if training_mfu is None else training_mfu
    if not 0.0 < mfu <= 1.0:
        raise ConfigError(f"training_mfu is {mfu}: it must be above 0 and at most 1")
    return SubStageCost(CHUNK_BASE_SECONDS, 1000.0 * 6.0 * llm.params / (gpu.peak_flops * mfu * devices), 1.0)


def logprob_cost(update: SubStageCost) -> SubStageCost:
    """One log-prob chunk: a third of the update."""
    return SubStageCost(update.base_seconds / 3.0, update.ktoken_seconds / 3.0, update.exponent)


def kv_token_capacity(gpu: Gpu, llm: Llm, devices: int = 1, memory_fraction: float = 0.85) -> int:
    """Context tokens that fit beside the weights; 0.85 of the memory is our assumption (the rest: activations)."""
    left = gpu.memory_bytes * memory_fraction * devices - llm.params * BYTES
    if left <= 0:
        raise ConfigError(f"{llm.name} does not fit on {devices} × {gpu.name}: use more devices per rollout replica")
    return int(left // llm.kv_bytes_per_token)


def decode_tokens_per_second(gpu: Gpu, llm: Llm, batch: int, context_tokens: int, devices: int = 1) -> float:
    """Decode throughput of one replica at a steady batch and context."""
    timings = rollout_timings(gpu, llm, devices)
    return batch / (timings.step_seconds + timings.context_seconds * batch * context_tokens)


def roofline_timings(
    gpu: Gpu,
    llm: Llm,
    *,
    rollouter_devices: int = 1,
    trainer_devices: int = 1,
    collective_bytes_per_second: float,
    training_mfu: float | None = None,
) -> SimTimings:
    """All timings of a job.

    Args:
        gpu: device type.
        llm: model.
        rollouter_devices: devices of one rollout replica.
        trainer_devices: devices of one trainer replica.
        collective_bytes_per_second: slowest link that gradients and weights cross, achieved.
        training_mfu: in place of the GPU's.
    """
    weights = llm.params * BYTES
    update = update_cost(gpu, llm, trainer_devices, training_mfu)
    logprob = logprob_cost(update)
    adam = ADAM_BYTES * llm.params / (gpu.memory_bytes_per_second * gpu.bandwidth_fraction * trainer_devices)
    costs = {direction: switch_cost(direction, gpu, llm) for direction in Direction}
    return SimTimings(
        rollout=rollout_timings(gpu, llm, rollouter_devices),
        old_logprob=logprob,
        ref_logprob=logprob,
        actor_update=update,
        rollouter_on_trainpool=costs[Direction.ROLLOUTER_ON_TRAINPOOL].cost,
        trainer_on_rollpool=costs[Direction.TRAINER_ON_ROLLPOOL].cost,
        optimizer_step_seconds=2.0 * weights / collective_bytes_per_second + adam,
        export_seconds=weights / collective_bytes_per_second,
        load_weights_seconds=weights / (gpu.host_bytes_per_second * rollouter_devices),
        source=f"simulated: roofline of {llm.name} on {gpu.name}; switch costs: "
        + "; ".join(f"{direction}: {known.source}" for direction, known in costs.items()),
    )


def _check_devices(devices: int) -> None:
    if devices < 1:
        raise ConfigError(f"a replica has {devices} devices: it needs at least 1")
