"""Devices, pools, roles and the workers placed on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bidirl.core.errors import ConfigError


class Role(StrEnum):
    """What a worker does."""

    ROLLOUTER = "rollouter"
    TRAINER = "trainer"


class Pool(StrEnum):
    """The two committed pools of the device budget."""

    ROLL = "rollpool"
    TRAIN = "trainpool"


class Direction(StrEnum):
    """Who borrows from whom."""

    ROLLOUTER_ON_TRAINPOOL = "rollouter_on_trainpool"
    TRAINER_ON_ROLLPOOL = "trainer_on_rollpool"


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """One replica of a role on the devices that its layout needs.

    A worker is *primary* when its role is the role of its pool, else *auxiliary* (passive until a lease wakes it).
    """

    role: Role
    pool: Pool
    index: int
    devices: tuple[int, ...]

    @property
    def primary(self) -> bool:
        """Whether the role is the home role of the pool."""
        return (self.role is Role.ROLLOUTER) == (self.pool is Pool.ROLL)

    @property
    def name(self) -> str:
        """Readable and unique, for example ``rollouter@trainpool:0``."""
        return f"{self.role}@{self.pool}:{self.index}"


@dataclass(frozen=True, slots=True)
class Topology:
    """A resource envelope (Eq. 2) made concrete: which worker sits on which device.

    Devices 0 … g_r−1 are RollPool, g_r … g_r+g_t−1 are TrainPool. RollPool may be empty (colocated execution: every
    device trains and hosts an auxiliary rollouter); TrainPool may not.
    """

    rollpool: tuple[int, ...]
    trainpool: tuple[int, ...]
    primary_rollouters: tuple[Worker, ...]
    primary_trainers: tuple[Worker, ...]
    auxiliary_rollouters: tuple[Worker, ...]
    auxiliary_trainers: tuple[Worker, ...]

    @property
    def num_devices(self) -> int:
        """Size of the budget."""
        return len(self.rollpool) + len(self.trainpool)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """All workers, primaries first."""
        return (
            *self.primary_rollouters,
            *self.primary_trainers,
            *self.auxiliary_rollouters,
            *self.auxiliary_trainers,
        )


def build_topology(
    rollpool_devices: int,
    trainpool_devices: int,
    rollouter_layout_devices: int = 1,
    trainer_layout_devices: int = 1,
    host_auxiliary_rollouters: bool = True,
    host_auxiliary_trainers: bool = True,
) -> Topology:
    """Place workers of both roles on both pools.

    Raises:
        ConfigError: if a pool is not divisible by a layout that it must hold (Algorithm 1, step 2), so that every
            switch would need resharding, or if the TrainPool is empty.
    """
    if trainpool_devices < 1:
        raise ConfigError(f"trainpool_devices is {trainpool_devices}: training needs at least 1 device")
    if rollpool_devices < 0:
        raise ConfigError(f"rollpool_devices is {rollpool_devices}: it cannot be negative")
    if rollpool_devices == 0 and not host_auxiliary_rollouters:
        raise ConfigError("rollpool_devices is 0: set host_auxiliary_rollouters to true, or nothing can generate")
    rollpool = tuple(range(rollpool_devices))
    trainpool = tuple(range(rollpool_devices, rollpool_devices + trainpool_devices))
    layouts = {Role.ROLLOUTER: rollouter_layout_devices, Role.TRAINER: trainer_layout_devices}

    def place(role: Role, pool: Pool, wanted: bool) -> tuple[Worker, ...]:
        devices, size = (rollpool if pool is Pool.ROLL else trainpool), layouts[role]
        if not wanted or not devices:
            return ()
        if size < 1 or len(devices) % size:
            raise ConfigError(
                f"{pool}_devices is {len(devices)}, not a multiple of {role}_layout_devices {size}: "
                f"use {max(size, len(devices) // max(size, 1) * size)} devices or another layout"
            )
        return tuple(Worker(role, pool, i, devices[i * size : (i + 1) * size]) for i in range(len(devices) // size))

    return Topology(
        rollpool,
        trainpool,
        place(Role.ROLLOUTER, Pool.ROLL, True),
        place(Role.TRAINER, Pool.TRAIN, True),
        place(Role.ROLLOUTER, Pool.TRAIN, host_auxiliary_rollouters),
        place(Role.TRAINER, Pool.ROLL, host_auxiliary_trainers),
    )
