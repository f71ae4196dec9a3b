"""The part of a config that describes the simulated world."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bidirl.core.errors import ConfigError
from bidirl.models.sim_calibration import load_timings
from bidirl.models.sim_timings import SimTimings, timings_from_mapping
from bidirl.runtime.sim.workload import Workload


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """What the simulated cluster runs, and what things take there.

    Attributes:
        workload: lengths and rewards (Workload).
        timings_file: JSON file with measured durations, or the summary.json of a run that is to be reproduced; null
            starts from a world in which nothing takes time.
        timings: durations in seconds that replace those of the file, as a mapping.
        max_num_seqs: sequences that one rollout replica runs at once.
        kv_tokens: context tokens that one rollout replica holds; null is unlimited.
    """

    workload: Workload
    timings_file: str | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    max_num_seqs: int = 64
    kv_tokens: int | None = None

    def __post_init__(self) -> None:
        self.resolved_timings()

    def resolved_timings(self) -> SimTimings:
        """File and replacements together.

        Raises:
            ConfigError: naming the key.
        """
        base = None if self.timings_file is None else load_timings(self.timings_file)
        return timings_from_mapping(self.timings, base)

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
