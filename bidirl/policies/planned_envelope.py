"""The planner's choice (Algorithm 1) as an envelope."""

from __future__ import annotations

from bidirl.core.interfaces import Envelope, StageModel
from bidirl.core.topology import Role, Topology, build_topology
from bidirl.core.work import RolloutUsage, RolloutWork, TrainerWork
from bidirl.policies.planner import MemoryModel, Placement, Plan, plan, smallest_layout


class PlannedEnvelope(Envelope):
    """The split with the highest predicted pipeline rate λ_pipe.

    Args:
        num_devices: the budget G.
        groups_per_batch: B_p.
        rollout_work: one batch as work for M_r.
        trainer_work: one batch as stage-ordered work for M_t.
        rollout_model: M_r.
        trainer_model: M_t.
        rollouter_layout_devices: |ρ_r|; ``None``: the smallest that fits ``memory`` (1 without a memory model).
        trainer_layout_devices: |ρ_t|; likewise.
        memory: says which layouts fit.
        placement: node size, node alignment, which auxiliaries are hosted.
    """

    def __init__(
        self,
        *,
        num_devices: int,
        groups_per_batch: int,
        rollout_work: RolloutWork,
        trainer_work: TrainerWork,
        rollout_model: StageModel[RolloutWork, RolloutUsage],
        trainer_model: StageModel[TrainerWork, TrainerWork],
        rollouter_layout_devices: int | None = None,
        trainer_layout_devices: int | None = None,
        memory: MemoryModel | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.num_devices = num_devices
        self.groups_per_batch = groups_per_batch
        self.rollout_work = rollout_work
        self.trainer_work = trainer_work
        self.rollout_model = rollout_model
        self.trainer_model = trainer_model
        self.layouts = {Role.ROLLOUTER: rollouter_layout_devices, Role.TRAINER: trainer_layout_devices}
        self.memory = memory
        self.placement = placement if placement is not None else Placement()

    def _layout(self, role: Role) -> int:
        given = self.layouts[role]
        if given is not None:
            return given
        return smallest_layout(role, self.num_devices, self.memory) if self.memory is not None else 1

    def plan(self) -> Plan:
        """The chosen split, the ranked candidates and the excluded ones."""
        return plan(
            self.num_devices,
            self.groups_per_batch,
            self.rollout_work,
            self.trainer_work,
            self.rollout_model,
            self.trainer_model,
            self._layout(Role.ROLLOUTER),
            self._layout(Role.TRAINER),
            self.placement,
        )

    def topology(self) -> Topology:
        """The chosen split."""
        found = self.plan()
        return build_topology(
            found.chosen.rollpool_devices,
            found.chosen.trainpool_devices,
            found.rollouter_layout_devices,
            found.trainer_layout_devices,
            self.placement.host_auxiliary_rollouters,
            self.placement.host_auxiliary_trainers,
        )
