"""The config of a job. One file serves both worlds; each command builds only the sections that it uses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from bidirl.cli.simulation import SimulationConfig
from bidirl.core.errors import ConfigError
from bidirl.core.interfaces import AdmissionPolicy, Envelope, Splitter
from bidirl.core.job import JobSettings
from bidirl.models import oracle, rollout, table, trainer
from bidirl.models.rollout_base import RolloutModel
from bidirl.models.switch_cost import SwitchCostModel
from bidirl.models.trainer_base import TrainerModel

# Importing these makes their classes known by their short names.
from bidirl.policies import (
    baselines,
    envelopes,
    model_guided,
    planned_envelope,
    priced,
    published_gates,
    random_leases,
    splitters,
)
from bidirl.runtime.learning import GrpoConfig, sub_stages
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.sim import replay, workload
from bidirl.runtime.tasks import Task

Tracking = Literal["none", "files", "wandb"]
SHIPPED = (
    baselines,
    envelopes,
    model_guided,
    planned_envelope,
    priced,
    published_gates,
    random_leases,
    splitters,
    oracle,
    rollout,
    table,
    trainer,
    replay,
    workload,
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that defines a run.

    Classes are named by their import path, or by their name alone where bidirl ships them, with their arguments under
    ``init_args``: ``policy: {class_path: my_package.MyPolicy, init_args: {margin_seconds: 2}}``.

    Attributes:
        name: of the run; names its directory.
        policy: which borrows are admitted (AdmissionPolicy).
        splitter: how admitted work is divided (Splitter).
        envelope: which devices form which pool (Envelope).
        rollout_model: M_r, the stage-time model of rollout.
        trainer_model: M_t, the stage-time model of training.
        switch_costs: priors and decay of C_in, C_out and C_grad.
        num_steps: optimizer steps to run.
        groups_per_batch: B, groups consumed by one optimizer step.
        group_size: G, samples per group.
        staleness: the bound s; a fraction f allows floor(f·B) groups of a batch to be one version older.
        consumption: first_ready takes groups as they finish; pinned generates batch k wholly under version
            max(0, k − s) and consumes groups in order, so that training does not depend on placement.
        on_weight_update: interrupt resumes running groups from their prefixes under the new weights; finish lets them
            end under the old ones first.
        max_tokens_per_chunk: largest trainer micro-batch; the last ones of a batch are smaller.
        max_groups_per_rollouter: groups that one rollout replica runs at once; 0 derives it from the engine's limit.
        calibration_steps: first steps in which model-guided policies refuse and the stage models are fitted.
        probe_switches: switches of each direction measured before the first step, after one that warms up; with 0,
            costs are unknown until the first lease.
        watchdog_seconds: end the run when nothing has progressed for this long.
        max_degenerate_batches: end the run after this many batches in a row without a trainable token.
        max_worker_restarts: losses of one worker that are survived; 0 ends the run at the first.
        checkpoint_every: leave a checkpoint in the run directory after every so many steps; 0 leaves none.
        auto_resume: a run that loses a primary trainer goes on from its newest checkpoint, in the directory NAME-2 (-3,
            …), as long as each attempt has left a new one; false ends it.
        record_digests: hash the parameters after every step, and write the hash into the ledger.
        seed: base of every random stream.
        learning: GRPO.
        task: prompts and rewards (Task); needed by "bidirl train" only.
        ray: the real runtime; needed by "bidirl train" only.
        simulation: the simulated world; needed by "bidirl simulate" only.
        output_dir: directory of the run; null is runs/<name>. It must not exist.
        tracking: none prints only; files fills the run directory; wandb does that and a W&B run, offline without a key.
        wandb_project: project in W&B.
    """

    DEFAULT_CLASSES: ClassVar[dict[str, str]] = {
        "splitter": "bidirl.policies.splitters.CapacitySplit",
        "rollout_model": "bidirl.models.rollout.CalibratedRolloutModel",
        "trainer_model": "bidirl.models.trainer.CalibratedTrainerModel",
        "switch_costs": "bidirl.models.switch_cost.SwitchCostModel",
    }

    # Sections that a world does not use: names and types are checked, the object is not built and stays None.
    UNBUILT: ClassVar[dict[str, tuple[str, ...]]] = {"ray": ("simulation",), "sim": ("task", "ray")}

    name: str
    policy: AdmissionPolicy
    splitter: Splitter
    envelope: Envelope
    rollout_model: RolloutModel
    trainer_model: TrainerModel
    switch_costs: SwitchCostModel
    num_steps: int = 10
    groups_per_batch: int = 8
    group_size: int = 4
    staleness: float = 1.0
    consumption: Literal["first_ready", "pinned"] = "first_ready"
    on_weight_update: Literal["interrupt", "finish"] = "interrupt"
    max_tokens_per_chunk: int = 4096
    max_groups_per_rollouter: int = 0
    calibration_steps: int = 2
    probe_switches: int = 1
    watchdog_seconds: float = 600.0
    max_degenerate_batches: int = 8
    max_worker_restarts: int = 3
    checkpoint_every: int = 0
    auto_resume: bool = True
    record_digests: bool = False
    seed: int = 0
    learning: GrpoConfig
    task: Task
    ray: RayConfig
    simulation: SimulationConfig
    output_dir: str | None = None
    tracking: Tracking = "files"
    wandb_project: str = "bidirl"

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ConfigError(f"name is {self.name!r}: it names a directory, use letters, digits and dashes")
        self.job()
        if self.checkpoint_every < 0:
            raise ConfigError(f"checkpoint_every is {self.checkpoint_every}: it cannot be negative")
        if self.checkpoint_every and self.tracking == "none":
            raise ConfigError("checkpoint_every needs a run directory: set tracking to files or wandb, or it to 0")
        self.envelope.topology()
        if self.simulation is not None:
            self.simulation.check(self.group_size)

    def job(self) -> JobSettings:
        """The settings that core knows; the trainer's sub-stages follow from ``learning``."""
        own = {field.name for field in fields(self)}
        shared = {field.name: getattr(self, field.name) for field in fields(JobSettings) if field.name in own}
        return JobSettings(**shared, sub_stages=sub_stages(self.learning))
