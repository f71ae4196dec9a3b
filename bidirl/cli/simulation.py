"""The part of a config that describes the simulated world."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bidirl.core.errors import ConfigError
from bidirl.core.topology import Topology
from bidirl.models.llm import llm
from bidirl.models.sim_calibration import load_timings
from bidirl.models.sim_timings import SimTimings, timings_from_mapping
from bidirl.models.testbeds import find_testbed
from bidirl.runtime.sim.workload import Workload


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """What the simulated cluster runs, and what things take there.

    Attributes:
        workload: lengths and rewards (Workload).
        testbed: a6000 or h100: durations from its roofline for ``model``; null for none.
        model: the language model on the testbed, for example qwen3-vl-4b.
        timings_file: JSON file with measured durations, or the summary.json of a run that is to be reproduced; null
            without a testbed is a world in which nothing takes time.
        timings: durations in seconds that replace those of the testbed or the file, as a mapping.
        max_num_seqs: sequences that one rollout replica runs at once.
        kv_tokens: context tokens that one rollout replica holds; null is what the testbed's memory holds, or unlimited.
    """

    workload: Workload
    testbed: str | None = None
    model: str | None = None
    timings_file: str | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    max_num_seqs: int = 64
    kv_tokens: int | None = None

    def __post_init__(self) -> None:
        if (self.testbed is None) != (self.model is None):
            raise ConfigError("simulation.testbed and simulation.model belong together: set both or neither")
        if self.testbed is not None and self.timings_file is not None:
            raise ConfigError("simulation.testbed and simulation.timings_file exclude each other: remove one")
        if self.testbed is not None and self.model is not None:
            find_testbed(self.testbed)
            llm(self.model)
        if self.testbed is None:
            self.resolved_timings()

    def resolved_timings(self, topology: Topology | None = None) -> SimTimings:
        """Testbed or file, and replacements; the layouts of ``topology`` (1 device each without) scale a testbed.

        Raises:
            ConfigError: naming the key.
        """
        base = None
        if self.testbed is not None and self.model is not None:
            rollouter, trainer = layouts(topology)
            base = find_testbed(self.testbed).timings(self.model, rollouter_devices=rollouter, trainer_devices=trainer)
        elif self.timings_file is not None:
            base = load_timings(self.timings_file)
        return timings_from_mapping(self.timings, base)

    def resolved_kv_tokens(self, topology: Topology) -> int | None:
        """Context tokens that one rollout replica holds."""
        if self.kv_tokens is not None or self.testbed is None or self.model is None:
            return self.kv_tokens
        return find_testbed(self.testbed).kv_tokens(self.model, layouts(topology)[0])

    def check(self, group_size: int) -> None:
        """Refuse a workload that was made for another job.

        Raises:
            ConfigError: naming both keys.
        """
        if self.workload.group_size != group_size:
            raise ConfigError(
                f"simulation.workload.group_size is {self.workload.group_size}, but group_size is {group_size}: "
                "set both to the same value"
            )


def layouts(topology: Topology | None) -> tuple[int, int]:
    """Devices of one rollouter and of one trainer replica."""
    if topology is None:
        return 1, 1
    rollouters = (*topology.primary_rollouters, *topology.auxiliary_rollouters)
    return len(rollouters[0].devices), len(topology.primary_trainers[0].devices)
