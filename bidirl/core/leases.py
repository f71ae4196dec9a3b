"""A lease: one admitted borrow, from switch-in to switch-out.

switching_in ──▶ active ──▶ draining ──▶ switching_out ──▶ closed
└────────────── rolled_back (the switch-in failed; the lender works on)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from bidirl.core.errors import InvariantError
from bidirl.core.opportunity import Decision, LeaseView
from bidirl.core.topology import Direction, Worker


class LeaseState(StrEnum):
    """See the module docstring."""

    SWITCHING_IN = "switching_in"
    ACTIVE = "active"
    DRAINING = "draining"
    SWITCHING_OUT = "switching_out"
    CLOSED = "closed"
    ROLLED_BACK = "rolled_back"


_NEXT = {
    LeaseState.SWITCHING_IN: (LeaseState.ACTIVE, LeaseState.ROLLED_BACK),
    LeaseState.ACTIVE: (LeaseState.DRAINING,),
    LeaseState.DRAINING: (LeaseState.SWITCHING_OUT,),
    LeaseState.SWITCHING_OUT: (LeaseState.CLOSED,),
    LeaseState.CLOSED: (),
    LeaseState.ROLLED_BACK: (),
}


@dataclass(slots=True)
class Lease:
    """State and measurements of one borrow. All times in seconds.

    Attributes:
        work_seconds: auxiliary busy time summed over the lease's replicas.
        saved_seconds: estimated time that the primaries would have needed for the work done here.
        num_units: groups or chunks that the auxiliaries finished.
        num_partials: groups that went back with an unfinished prefix.
    """

    lease_id: int
    direction: Direction
    workers: tuple[Worker, ...]
    opportunity_id: int
    decision: Decision
    version: int
    opened_seconds: float
    state: LeaseState = LeaseState.SWITCHING_IN
    in_seconds: float = 0.0
    out_seconds: float = 0.0
    grad_seconds: float = 0.0
    work_seconds: float = 0.0
    saved_seconds: float = 0.0
    num_units: int = 0
    num_partials: int = 0
    closed_seconds: float = field(default=float("nan"))

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices of all workers of the lease."""
        return tuple(device for worker in self.workers for device in worker.devices)

    @property
    def open(self) -> bool:
        """Whether the lease still holds its devices."""
        return self.state not in (LeaseState.CLOSED, LeaseState.ROLLED_BACK)

    @property
    def realised_benefit_seconds(self) -> float:
        """Estimated time saved, less C_out and C_grad.

        ``saved_seconds`` counts only work that the auxiliaries really did, so the time that passed during the switch-in
        is already missing from it, while the primaries went on working (an estimate: see docs/metrics.md).
        """
        return self.saved_seconds - self.out_seconds - self.grad_seconds

    def move(self, target: LeaseState) -> None:
        """Change state.

        Raises:
            InvariantError: for a change that the diagram does not have (4).
        """
        if target not in _NEXT[self.state]:
            raise InvariantError(4, f"lease {self.lease_id} cannot go {self.state} → {target}")
        self.state = target

    def view(self, now_seconds: float, auxiliary_busy: bool) -> LeaseView:
        """What a policy sees of it."""
        return LeaseView(
            self.lease_id, self.direction, self.opened_seconds, now_seconds, len(self.workers), auxiliary_busy
        )

    def row(self) -> dict[str, object]:
        """A log row."""
        return {
            "lease_id": self.lease_id,
            "direction": self.direction.value,
            "state": self.state.value,
            "workers": [worker.name for worker in self.workers],
            "opportunity_id": self.opportunity_id,
            "version": self.version,
            "opened_seconds": self.opened_seconds,
            "closed_seconds": self.closed_seconds,
            "in_seconds": self.in_seconds,
            "out_seconds": self.out_seconds,
            "grad_seconds": self.grad_seconds,
            "work_seconds": self.work_seconds,
            "num_units": self.num_units,
            "num_partials": self.num_partials,
            "predicted_benefit_seconds": self.decision.benefit_seconds,
            "predicted_cost_seconds": self.decision.cost_seconds,
            "realised_benefit_seconds": self.realised_benefit_seconds,
        }
