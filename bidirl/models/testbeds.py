"""The testbeds of the paper's evaluation, as far as they are public, and the timings of a job on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.models.hardware import Gpu, gpu
from bidirl.models.llm import llm
from bidirl.models.roofline import decode_tokens_per_second, kv_token_capacity, roofline_timings, update_cost
from bidirl.models.roofline_switch import switch_cost
from bidirl.models.sim_timings import SimTimings


@dataclass(frozen=True, slots=True)
class Testbed:
    """Nodes of equal devices.

    Attributes:
        name: key in :data:`TESTBEDS`.
        gpu: device type.
        num_nodes: nodes.
        devices_per_node: devices of one node.
        collective_bytes_per_second: what gradients and weights cross between nodes, achieved.
        source: of the layout and of the link.
    """

    __test__ = False

    name: str
    gpu: Gpu
    num_nodes: int
    devices_per_node: int
    collective_bytes_per_second: float
    source: str

    @property
    def num_devices(self) -> int:
        """Size of the budget."""
        return self.num_nodes * self.devices_per_node

    def with_nodes(self, num_nodes: int) -> Testbed:
        """The same with another number of nodes (beyond the paper's: an extrapolation)."""
        if num_nodes < 1:
            raise ConfigError(f"num_nodes is {num_nodes}: it must be at least 1")
        note = "" if num_nodes <= self.num_nodes else f"; extrapolated to {num_nodes} nodes"
        return replace(self, num_nodes=num_nodes, source=self.source + note)

    def timings(
        self,
        model: str,
        *,
        rollouter_devices: int = 1,
        trainer_devices: int = 1,
        training_mfu: float | None = None,
    ) -> SimTimings:
        """Timings of a job that trains ``model`` here; simulated."""
        found = roofline_timings(
            self.gpu,
            llm(model),
            rollouter_devices=rollouter_devices,
            trainer_devices=trainer_devices,
            collective_bytes_per_second=self.collective_bytes_per_second,
            training_mfu=training_mfu,
        )
        return replace(found, source=f"{found.source}; testbed: {self.source}")

    def kv_tokens(self, model: str, rollouter_devices: int = 1) -> int:
        """Context tokens that one rollout replica holds."""
        return kv_token_capacity(self.gpu, llm(model), rollouter_devices)


TESTBEDS: dict[str, Testbed] = {
    bed.name: bed
    for bed in (
        Testbed(
            "a6000",
            gpu("a6000"),
            4,
            8,
            12.5e9,
            "paper §3: 4 nodes × 8 RTX A6000-48G, 200 Gb/s; half of the link is taken as achieved (assumption)",
        ),
        Testbed(
            "h100",
            gpu("h100"),
            4,
            8,
            35.9e9,
            "paper §3: 4 nodes × 8 H100-80G, 8 × 400 Gb/s; achieved inter-node send/recv 35.9 GB/s from "
            "microsoft/vidur data/profiling/network (H100 DGX)",
        ),
    )
}


def find_testbed(name: str) -> Testbed:
    """A testbed by name.

    Raises:
        ConfigError: naming those available.
    """
    try:
        return TESTBEDS[name]
    except KeyError:
        raise ConfigError(f"testbed is {name!r}: use one of {', '.join(TESTBEDS)}") from None


def roofline_table(testbed_names: tuple[str, ...], models: tuple[str, ...]) -> list[dict[str, object]]:
    """One row per testbed and model, to look at: all simulated. Decode at batch 64 and 1,024 tokens of context."""
    rows: list[dict[str, object]] = []
    for name in testbed_names:
        bed = find_testbed(name)
        for model_name in models:
            model = llm(model_name)
            row: dict[str, object] = {
                "testbed": name,
                "model": model_name,
                "params_billion": round(model.params / 1e9, 3),
                "decode_tokens_per_second": round(decode_tokens_per_second(bed.gpu, model, 64, 1024)),
                "update_seconds_per_1k_tokens": round(update_cost(bed.gpu, model).ktoken_seconds, 4),
                "optimizer_step_seconds": round(bed.timings(model_name).optimizer_step_seconds, 3),
            }
            for direction in Direction:
                known = switch_cost(direction, bed.gpu, model)
                mark = "~" if known.extrapolated else ""
                cost = known.cost
                row[str(direction)] = f"{mark}{cost.in_seconds:.2f}/{cost.out_seconds:.2f}/{cost.grad_seconds:.2f}"
            rows.append(row)
    return rows
