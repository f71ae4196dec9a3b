"""GPUs: peak figures and achieved fractions, each with its source. Nothing here was measured by us.

"CONSTANTS §x" is the project's collection of published numbers; the source named there is repeated with each value.
"""

from __future__ import annotations

from dataclasses import dataclass

from bidirl.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device type.

    Attributes:
        name: key in :data:`GPUS`.
        peak_flops: dense bf16, FLOP/s.
        memory_bytes_per_second: peak.
        memory_bytes: capacity.
        host_bytes_per_second: one direction of the host link, achieved (offload, reload).
        bandwidth_fraction: of the peak, achieved while decoding.
        prefill_mfu: of ``peak_flops``, achieved by a layer on thousands of tokens.
        training_mfu: of ``peak_flops``, achieved by the actor update in published RL runs.
        training_mfu_range: lowest and highest published value that was considered.
        sources: field → where its value comes from.
    """

    name: str
    peak_flops: float
    memory_bytes_per_second: float
    memory_bytes: float
    host_bytes_per_second: float
    bandwidth_fraction: float
    prefill_mfu: float
    training_mfu: float
    training_mfu_range: tuple[float, float]
    sources: dict[str, str]


_VIDUR = "microsoft/vidur data/profiling/compute (MIT, @7d47513), Llama-2-7B layer TP1 [derived]"
_EASYR1 = "EasyR1 assets/baselines.md, Geo3K GRPO, Qwen2.5-VL"
_OFFLOAD = "DeepSpeedExamples training/offload_states README @45b4b715: reload of 18.2 GB/GPU at about 7.5 GB/s (PCIe4)"

GPUS: dict[str, Gpu] = {
    "a6000": Gpu(
        name="a6000",
        peak_flops=154.8e12,
        memory_bytes_per_second=768e9,
        memory_bytes=48e9,
        host_bytes_per_second=7.5e9,
        bandwidth_fraction=0.75,
        prefill_mfu=0.67,
        training_mfu=0.265,
        training_mfu_range=(0.112, 0.265),
        sources={
            "peak_flops": "servethehome.com nvidia-rtx-a6000-48gb (309.7e12 sparse, halved)",
            "memory_bytes_per_second": "LLM-Viewer hardwares/hardware_params.py: 768e9",
            "memory_bytes": "servethehome.com nvidia-rtx-a6000-48gb: 48 GB GDDR6",
            "host_bytes_per_second": _OFFLOAD,
            "bandwidth_fraction": f"{_VIDUR}: A40 (same GA102 chip) .80 at T=1, .65 at T=64; between them",
            "prefill_mfu": f"{_VIDUR}: A40 whole layer .67 at 4096 tokens",
            "training_mfu": f"{_EASYR1} 7B on 8×L20-48G: 26.5%. Extrapolated: another 48 GB card, not an A6000",
            "training_mfu_range": f"{_EASYR1} on L20-48G: 32B 11.2%, 7B 26.5%",
        },
    ),
    "a100": Gpu(
        name="a100",
        peak_flops=312e12,
        memory_bytes_per_second=2039e9,
        memory_bytes=80e9,
        host_bytes_per_second=7.5e9,
        bandwidth_fraction=0.73,
        prefill_mfu=0.65,
        training_mfu=0.20,
        training_mfu_range=(0.063, 0.265),
        sources={
            "peak_flops": "verl _DEVICE_FLOPS",
            "memory_bytes_per_second": "LLM-Viewer hardwares/hardware_params.py",
            "memory_bytes": "LLM-Viewer hardwares/hardware_params.py: 80 GB",
            "host_bytes_per_second": _OFFLOAD,
            "bandwidth_fraction": f"{_VIDUR}: A100 .75 at T=1, .73 at T=64",
            "prefill_mfu": f"{_VIDUR}: A100 whole layer .65 at 4096 tokens",
            "training_mfu": f"extrapolated between H100 and L20 in {_EASYR1}; no A100 figure found",
            "training_mfu_range": f"{_EASYR1}: 3B on H100 6.3%, 7B on L20 26.5%",
        },
    ),
    "h100": Gpu(
        name="h100",
        peak_flops=989.4e12,
        memory_bytes_per_second=3.35e12,
        memory_bytes=80e9,
        host_bytes_per_second=15e9,
        bandwidth_fraction=0.75,
        prefill_mfu=0.65,
        training_mfu=0.136,
        training_mfu_range=(0.063, 0.192),
        sources={
            "peak_flops": "glennklockwood.com/garden/processors/h100",
            "memory_bytes_per_second": "glennklockwood.com/garden/processors/h100 (LLM-Viewer uses 3.072e12)",
            "memory_bytes": "glennklockwood.com/garden/processors/h100: 80 GB",
            "host_bytes_per_second": f"extrapolated: PCIe5 at twice the PCIe4 figure of {_OFFLOAD}",
            "bandwidth_fraction": f"{_VIDUR}: H100 .77 at T=1, .76 at T=64, .71 at T=128",
            "prefill_mfu": f"{_VIDUR}: H100 whole layer .65 at 4096 tokens",
            "training_mfu": f"{_EASYR1} 7B on 8×H100: 13.6%",
            "training_mfu_range": f"{_EASYR1} on 8×H100: 3B 6.3%, 7B with micro-batch 10 19.2%",
        },
    ),
    "h200": Gpu(
        name="h200",
        peak_flops=989.4e12,
        memory_bytes_per_second=4.8e12,
        memory_bytes=141e9,
        host_bytes_per_second=15e9,
        bandwidth_fraction=0.75,
        prefill_mfu=0.65,
        training_mfu=0.136,
        training_mfu_range=(0.063, 0.192),
        sources={
            "peak_flops": "verl _DEVICE_FLOPS (the 1.97e15 often quoted is sparse)",
            "memory_bytes_per_second": "saulelectric.com/nvidia-h200",
            "memory_bytes": "saulelectric.com/nvidia-h200: 141 GB",
            "host_bytes_per_second": f"extrapolated: PCIe5 at twice the PCIe4 figure of {_OFFLOAD}",
            "bandwidth_fraction": "extrapolated: as H100",
            "prefill_mfu": "extrapolated: as H100 (same peak)",
            "training_mfu": "extrapolated: as H100 (same peak)",
            "training_mfu_range": "extrapolated: as H100",
        },
    ),
}


def gpu(name: str) -> Gpu:
    """A GPU by name.

    Raises:
        ConfigError: naming those available.
    """
    try:
        return GPUS[name]
    except KeyError:
        raise ConfigError(f"gpu is {name!r}: use one of {', '.join(GPUS)}") from None
