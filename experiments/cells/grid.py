"""The cells: testbed × model × response cap × staleness × split × σ, and a family in which borrowing cannot pay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from bidirl.core.chunks import SubStage
from bidirl.core.job import JobSettings
from bidirl.core.topology import Direction, Topology, build_topology
from bidirl.core.work import SwitchCost
from bidirl.models.sim_timings import SimTimings
from bidirl.models.testbeds import find_testbed
from bidirl.runtime.sim.workload import LognormalWorkload

NUM_DEVICES = 16
GROUP_SIZE = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulated job. Two nodes of 8 devices, as in the paper's default.

    Attributes:
        testbed: name of the testbed.
        model: name of the language model.
        max_response_tokens: response cap; the median length is a fifth of it.
        staleness: s.
        rollpool_devices: g_r of 16 devices.
        sigma: σ of the lognormal lengths.
        switch_scale: multiplies every switch cost of the testbed.
    """

    testbed: str
    model: str
    max_response_tokens: int
    staleness: float
    rollpool_devices: int
    sigma: float
    switch_scale: float = 1.0

    @property
    def name(self) -> str:
        """Readable and unique."""
        parts = (
            self.testbed,
            self.model,
            f"cap{self.max_response_tokens}",
            f"s{self.staleness:g}",
            f"{self.rollpool_devices}+{NUM_DEVICES - self.rollpool_devices}",
            f"sigma{self.sigma:g}",
            f"switch{self.switch_scale:g}",
        )
        return " ".join(parts)

    def topology(self) -> Topology:
        """One device per replica."""
        return build_topology(self.rollpool_devices, NUM_DEVICES - self.rollpool_devices)

    def workload(self, seed: int) -> LognormalWorkload:
        """Long-tailed lengths, cut off at the cap."""
        return LognormalWorkload(
            group_size=GROUP_SIZE,
            max_response_tokens=self.max_response_tokens,
            median_response_tokens=self.max_response_tokens / 5,
            sigma=self.sigma,
            median_prompt_tokens=256,
            groups_per_batch=self.settings(1).groups_per_batch,
            seed=seed,
        )

    def timings(self) -> SimTimings:
        """Of the testbed, with scaled switch costs."""
        timings = find_testbed(self.testbed).timings(self.model)
        scaled = {d.value: scaled_cost(timings.switch(d), self.switch_scale) for d in Direction}
        return replace(timings, **scaled)

    def settings(self, num_steps: int, seed: int = 0) -> JobSettings:
        """64 prompts per batch, on H100 too: the paper doubles it there, which would double the time of this grid."""
        return JobSettings(
            num_steps=num_steps,
            groups_per_batch=64,
            group_size=GROUP_SIZE,
            staleness=self.staleness,
            max_tokens_per_chunk=8192,
            sub_stages=(SubStage.OLD_LOGPROB, SubStage.ACTOR_UPDATE),
            max_groups_per_rollouter=8,
            calibration_steps=2,
            watchdog_seconds=1e5,
            max_degenerate_batches=100,
            seed=seed,
        )


def scaled_cost(cost: SwitchCost, scale: float) -> SwitchCost:
    """All parts times ``scale``."""
    return SwitchCost(scale * cost.in_seconds, scale * cost.out_seconds, scale * cost.grad_seconds)


def grid() -> list[Cell]:
    """216 cells: every second one of 2 testbeds × 2 sizes × 3 caps × 4 s × 3 splits × 3 σ."""
    every = [
        Cell(bed, model, cap, s, split, sigma)
        for bed, model, cap, s, split, sigma in product(
            ("a6000", "h100"),
            ("qwen3-vl-2b", "qwen3-vl-4b"),
            (1024, 2048, 4096),
            (0.0, 0.5, 1.0, 2.0),
            (4, 8, 12),
            (0.5, 0.75, 1.0),
        )
    ]
    return every[::2]


def hopeless() -> list[Cell]:
    """Cells in which no lease can pay: every switch takes 50 times as long."""
    return [
        Cell(bed, model, 1024, s, split, 0.75, switch_scale=50.0)
        for bed, model in (("a6000", "qwen3-vl-2b"), ("h100", "qwen3-vl-2b"))
        for s in (0.0, 1.0)
        for split in (4, 8)
    ]


def quick() -> list[Cell]:
    """A dozen cells over all axes."""
    return [*grid()[::20], *hopeless()[::7]]
