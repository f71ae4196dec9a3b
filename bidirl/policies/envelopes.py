"""Envelopes without a search: a given split, and one pool that alternates."""

from __future__ import annotations

from bidirl.core.errors import ConfigError
from bidirl.core.interfaces import Envelope
from bidirl.core.topology import Topology, build_topology


class FixedEnvelope(Envelope):
    """A given split.

    Args:
        rollpool_devices: g_r.
        trainpool_devices: g_t.
        rollouter_layout_devices: |ρ_r|, devices of one rollouter replica.
        trainer_layout_devices: |ρ_t|, devices of one trainer replica.
        host_auxiliary_rollouters: whether TrainPool devices also hold auxiliary rollouters.
        host_auxiliary_trainers: whether RollPool devices also hold auxiliary trainers.
    """

    def __init__(
        self,
        *,
        rollpool_devices: int,
        trainpool_devices: int,
        rollouter_layout_devices: int = 1,
        trainer_layout_devices: int = 1,
        host_auxiliary_rollouters: bool = True,
        host_auxiliary_trainers: bool = True,
    ) -> None:
        self.rollpool_devices = rollpool_devices
        self.trainpool_devices = trainpool_devices
        self.rollouter_layout_devices = rollouter_layout_devices
        self.trainer_layout_devices = trainer_layout_devices
        self.host_auxiliary_rollouters = host_auxiliary_rollouters
        self.host_auxiliary_trainers = host_auxiliary_trainers

    def topology(self) -> Topology:
        """The split as given."""
        if self.rollpool_devices < 1:
            raise ConfigError(
                f"rollpool_devices is {self.rollpool_devices}: use at least 1, or ColocatedEnvelope for one shared pool"
            )
        return build_topology(
            self.rollpool_devices,
            self.trainpool_devices,
            self.rollouter_layout_devices,
            self.trainer_layout_devices,
            self.host_auxiliary_rollouters,
            self.host_auxiliary_trainers,
        )


class ColocatedEnvelope(Envelope):
    """All devices alternate between both stages: the synchronous baseline.

    An empty RollPool and auxiliary rollouters on every device; needs a policy that admits rollouter_on_trainpool.

    Args:
        num_devices: the budget.
        rollouter_layout_devices: |ρ_r|, devices of one rollouter replica.
        trainer_layout_devices: |ρ_t|, devices of one trainer replica.
    """

    def __init__(self, *, num_devices: int, rollouter_layout_devices: int = 1, trainer_layout_devices: int = 1) -> None:
        self.num_devices = num_devices
        self.rollouter_layout_devices = rollouter_layout_devices
        self.trainer_layout_devices = trainer_layout_devices

    def topology(self) -> Topology:
        """One pool."""
        if self.num_devices < 1:
            raise ConfigError(f"num_devices is {self.num_devices}: use at least 1")
        return build_topology(0, self.num_devices, self.rollouter_layout_devices, self.trainer_layout_devices)
