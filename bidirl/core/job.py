"""The world-neutral settings of a run."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What the coordinator needs to know, in either world.

    Attributes:
        num_steps: optimizer steps to run.
        groups_per_batch: B, groups consumed by one optimizer step.
        group_size: G, samples per group.
        staleness: the bound s; a fraction f allows floor(f·B) groups of a batch to be one version older.
        consumption: ``first_ready`` takes groups as they finish; ``pinned`` generates batch k wholly under version
            max(0, k − s) and consumes groups in order, which makes training independent of placement (invariant 11).
        on_weight_update: ``interrupt`` resumes running groups from their prefixes under the new weights;
            ``finish`` lets them end under the old ones first.
        max_tokens_per_chunk: largest trainer micro-batch; the last ones of a batch are smaller.
        sub_stages: the trainer's sub-stages in order.
        max_groups_per_rollouter: groups that one rollout replica runs at once; 0 derives it from the engine's limit.
        calibration_steps: first steps in which model-guided policies must refuse and the stage models are fitted.
        probe_switches: switches of each direction measured before the first step, after one that warms up; with 0,
            costs are unknown until the first lease.
        watchdog_seconds: end the run when nothing has progressed for this long.
        max_degenerate_batches: end the run after this many batches in a row without a trainable token.
        max_worker_restarts: losses of one worker that are survived; 0 ends the run at the first.
        record_digests: hash the parameters after every step, and write the hash into the ledger.
        seed: base of every random stream.
    """

    num_steps: int = 10
    groups_per_batch: int = 8
    group_size: int = 4
    staleness: float = 1.0
    consumption: str = "first_ready"
    on_weight_update: str = "interrupt"
    max_tokens_per_chunk: int = 4096
    sub_stages: tuple[SubStage, ...] = (SubStage.ACTOR_UPDATE,)
    max_groups_per_rollouter: int = 0
    calibration_steps: int = 2
    probe_switches: int = 1
    watchdog_seconds: float = 600.0
    max_degenerate_batches: int = 8
    max_worker_restarts: int = 3
    record_digests: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse impossible settings, naming the key.

        Raises:
            ConfigError: see above.
        """
        for key in ("num_steps", "groups_per_batch", "group_size", "max_tokens_per_chunk", "max_degenerate_batches"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key} is {getattr(self, key)}: it must be at least 1")
        for key in ("calibration_steps", "probe_switches", "max_groups_per_rollouter", "max_worker_restarts"):
            if getattr(self, key) < 0:
                raise ConfigError(f"{key} is {getattr(self, key)}: it cannot be negative")
        if not 0 <= self.staleness < 1000:
            raise ConfigError(f"staleness is {self.staleness}: it must be a number from 0 up (0 is on-policy)")
        if self.consumption not in ("first_ready", "pinned"):
            raise ConfigError(f"consumption is {self.consumption!r}: use 'first_ready' or 'pinned'")
        if self.on_weight_update not in ("interrupt", "finish"):
            raise ConfigError(f"on_weight_update is {self.on_weight_update!r}: use 'interrupt' or 'finish'")
        if self.consumption == "pinned" and self.staleness != int(self.staleness):
            raise ConfigError(f"staleness is {self.staleness}: consumption 'pinned' needs a whole number")
        if not self.watchdog_seconds > 0:
            raise ConfigError(f"watchdog_seconds is {self.watchdog_seconds}: it must be positive")
        if not self.sub_stages or self.sub_stages[-1] is not SubStage.ACTOR_UPDATE:
            raise ConfigError("sub_stages must end with actor_update")

    @property
    def head_steps(self) -> int:
        """Steps dropped at the head of throughput: max(1, ceil(s)), and the calibration phase."""
        return max(1, ceil(self.staleness), self.calibration_steps)

    @property
    def tail_steps(self) -> int:
        """Steps dropped at the tail of throughput: ceil(s)."""
        return ceil(self.staleness)
