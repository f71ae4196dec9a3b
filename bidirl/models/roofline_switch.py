"""Switch costs: the paper's Table 5 where it has them, stated extrapolations everywhere else."""

from __future__ import annotations

from dataclasses import dataclass

from bidirl.core.topology import Direction
from bidirl.core.work import SwitchCost
from bidirl.models.hardware import Gpu, gpu
from bidirl.models.llm import LLMS, Llm

TABLE5_MODELS = ("qwen3-vl-2b", "qwen3-vl-4b")
TABLE5 = {
    Direction.TRAINER_ON_ROLLPOOL: (SwitchCost(3.58, 3.40, 0.66), SwitchCost(6.16, 5.62, 1.21)),
    Direction.ROLLOUTER_ON_TRAINPOOL: (SwitchCost(5.54, 4.20), SwitchCost(7.70, 5.59)),
}
"""arXiv 2607.09207, Table 5: seconds for Qwen3-VL-2B and 4B. Its testbed is not stated; taken as A6000."""
_TABLE5_GPU = "a6000"


@dataclass(frozen=True, slots=True)
class KnownSwitchCost:
    """A switch cost and where it comes from."""

    cost: SwitchCost
    extrapolated: bool
    source: str


def switch_cost(direction: Direction, device: Gpu, model: Llm) -> KnownSwitchCost:
    """C_in, C_out and C_grad of one direction.

    Other models: the line through the paper's two points, in parameters, not below half of the 2B figures. Other GPUs:
    the part that grows with the parameters is scaled by the inverse ratio of the host links.
    """
    small, large = TABLE5[direction]
    if model.name in TABLE5_MODELS and device.name == _TABLE5_GPU:
        cost = (small, large)[TABLE5_MODELS.index(model.name)]
        return KnownSwitchCost(cost, False, "paper, Table 5 (testbed not stated there, taken as A6000)")
    link = gpu(_TABLE5_GPU).host_bytes_per_second / device.host_bytes_per_second
    cost = SwitchCost(
        _line(small.in_seconds, large.in_seconds, model, link),
        _line(small.out_seconds, large.out_seconds, model, link),
        _line(small.grad_seconds, large.grad_seconds, model, link),
    )
    return KnownSwitchCost(
        cost, True, f"EXTRAPOLATED from the paper's Table 5 (2B, 4B) to {model.name} on {device.name}"
    )


def _line(small: float, large: float, model: Llm, link: float) -> float:
    first, second = (LLMS[name].params for name in TABLE5_MODELS)
    slope = (large - small) / (second - first)
    fixed = small - slope * first
    return max(fixed + slope * model.params * link, small / 2.0 * link)
