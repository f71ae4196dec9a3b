"""The static planner (Algorithm 1): which split of a device budget has the highest pipeline rate."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Protocol

from bidirl.core.errors import ConfigError
from bidirl.core.interfaces import StageModel
from bidirl.core.topology import Role
from bidirl.core.work import RolloutUsage, RolloutWork, TrainerWork

_LARGEST_LAYOUT = 4096
"""Devices of one replica beyond which the search for a layout gives up."""


class MemoryModel(Protocol):
    """Says whether one replica fits: weights, gradients, optimizer, activations, KV cache, the other role's residue."""

    def shortage_bytes(self, role: Role, layout_devices: int) -> float:
        """Bytes that are missing per device when one replica of ``role`` spans ``layout_devices``; ≤ 0 if it fits."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A legal split with its predictions.

    Attributes:
        rollpool_devices, trainpool_devices: g_r, g_t.
        rollout_seconds, train_seconds: T_r, T_t of one batch.
        groups_per_second: λ_pipe = min(λ_r, λ_t).
    """

    rollpool_devices: int
    trainpool_devices: int
    rollout_seconds: float
    train_seconds: float
    groups_per_second: float


@dataclass(frozen=True, slots=True)
class Excluded:
    """A split that was not evaluated, and why."""

    rollpool_devices: int
    trainpool_devices: int
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome. ``ranked`` is best first (the first found wins a tie); ``chosen`` is its head."""

    ranked: tuple[Candidate, ...]
    excluded: tuple[Excluded, ...]
    rollouter_layout_devices: int
    trainer_layout_devices: int

    @property
    def chosen(self) -> Candidate:
        """The best split."""
        return self.ranked[0]


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement constraints Π.

    Attributes:
        devices_per_node: size of a node.
        whole_nodes: whether each pool must consist of whole nodes.
        host_auxiliary_rollouters: whether the TrainPool must also be divisible by the rollouter layout.
        host_auxiliary_trainers: whether the RollPool must also be divisible by the trainer layout.
    """

    devices_per_node: int = 8
    whole_nodes: bool = False
    host_auxiliary_rollouters: bool = True
    host_auxiliary_trainers: bool = True


def smallest_layout(role: Role, num_devices: int, memory: MemoryModel) -> int:
    """Step 1: the fewest devices (a power of two) over which one replica fits.

    Raises:
        ConfigError: if none up to the budget fits.
    """
    size = 1
    while memory.shortage_bytes(role, size) > 0:
        size *= 2
        if size > _LARGEST_LAYOUT:
            shortage = memory.shortage_bytes(role, _LARGEST_LAYOUT) / 2**30
            raise ConfigError(
                f"num_devices is {num_devices}: memory holds no {role} replica over any layout, {shortage:.1f} GiB "
                f"short per device over {_LARGEST_LAYOUT}: use devices with more memory or a smaller model"
            )
    if size > num_devices:
        raise ConfigError(
            f"num_devices is {num_devices}: memory holds one {role} replica over {size} devices or more: "
            f"use at least {size} devices for it, devices with more memory, or a smaller model"
        )
    return size


def plan(
    num_devices: int,
    groups_per_batch: int,
    rollout_work: RolloutWork,
    trainer_work: TrainerWork,
    rollout_model: StageModel[RolloutWork, RolloutUsage],
    trainer_model: StageModel[TrainerWork, TrainerWork],
    rollouter_layout_devices: int = 1,
    trainer_layout_devices: int = 1,
    placement: Placement | None = None,
) -> Plan:
    """Steps 2–4: two model evaluations per legal candidate, the strict maximum of λ_pipe.

    Args:
        num_devices: G.
        groups_per_batch: B_p.
        rollout_work, trainer_work: one batch as work for M_r and M_t (U_B).
        rollout_model, trainer_model: M_r, M_t.
        rollouter_layout_devices, trainer_layout_devices: |ρ_r|, |ρ_t|.
        placement: Π; the defaults of :class:`Placement` if ``None``.

    Raises:
        ConfigError: if no split is legal: the constraint that fails and the smallest budget that works.
    """
    rules = placement if placement is not None else Placement()
    layouts = (rollouter_layout_devices, trainer_layout_devices)
    candidates: list[Candidate] = []
    excluded: list[Excluded] = []
    for roll in range(1, num_devices):
        train = num_devices - roll
        reason = _exclusion(roll, train, *layouts, rules)
        if reason is not None:
            excluded.append(Excluded(roll, train, reason))
            continue
        rollout_seconds = rollout_model.predict(rollout_work, roll // rollouter_layout_devices)
        train_seconds = trainer_model.predict(trainer_work, train // trainer_layout_devices)
        slower = max(rollout_seconds, train_seconds)
        rate = groups_per_batch / slower if slower > 0 else float("inf")
        candidates.append(Candidate(roll, train, rollout_seconds, train_seconds, rate))
    if not candidates:
        raise ConfigError(_infeasible(num_devices, *layouts, rules))
    ranked = tuple(sorted(candidates, key=lambda c: -c.groups_per_second))
    return Plan(ranked, tuple(excluded), rollouter_layout_devices, trainer_layout_devices)


def _exclusion(roll: int, train: int, rollouter: int, trainer: int, rules: Placement) -> str | None:
    """Step 2: why this split is illegal, or ``None``."""
    if rules.whole_nodes:
        for pool, size in (("rollpool", roll), ("trainpool", train)):
            if size % rules.devices_per_node:
                return f"{pool} {size} is not whole nodes of {rules.devices_per_node}"
    checks = (
        ("rollpool", roll, "rollouter", rollouter, True),
        ("trainpool", train, "trainer", trainer, True),
        ("rollpool", roll, "auxiliary trainer", trainer, rules.host_auxiliary_trainers),
        ("trainpool", train, "auxiliary rollouter", rollouter, rules.host_auxiliary_rollouters),
    )
    for pool, size, role, layout, needed in checks:
        if needed and size % layout:
            return f"{pool} {size} is not divisible by the {role} layout {layout}"
    return None


def _infeasible(num_devices: int, rollouter: int, trainer: int, rules: Placement) -> str:
    node = rules.devices_per_node if rules.whole_nodes else 1
    roll_unit = lcm(node, rollouter, trainer if rules.host_auxiliary_trainers else 1)
    train_unit = lcm(node, trainer, rollouter if rules.host_auxiliary_rollouters else 1)
    constraint = f"RollPool must be a multiple of {roll_unit} and TrainPool of {train_unit} devices"
    return (
        f"num_devices is {num_devices}: no split is legal, {constraint} "
        f"(layouts {rollouter} and {trainer}, nodes of {node}): use at least {roll_unit + train_unit} devices"
    )
