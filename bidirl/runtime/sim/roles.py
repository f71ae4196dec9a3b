"""Who may work on which device, checked on every verb of the simulated cluster (invariant 4)."""

from __future__ import annotations

from bidirl.core.errors import InvariantError
from bidirl.core.topology import Role, Topology, Worker


class RoleBoard:
    """Active and busy workers. A primary is active while all of its devices are at home."""

    def __init__(self, topology: Topology) -> None:
        self._known = dict.fromkeys(topology.workers)
        primaries = (*topology.primary_rollouters, *topology.primary_trainers)
        self._homes: dict[int, Worker] = {device: worker for worker in primaries for device in worker.devices}
        self._away: dict[int, Worker] = {}
        self._active_auxiliaries: dict[Worker, None] = {}
        self._busy: dict[Worker, dict[str, int]] = {worker: {} for worker in self._known}
        self.started = False

    def active(self, worker: Worker) -> bool:
        """Whether the worker may work now."""
        if not self.started:
            return False
        if worker.primary:
            return not any(device in self._away for device in worker.devices)
        return worker in self._active_auxiliaries

    def require(self, worker: Worker, role: Role, verb: str) -> None:
        """The worker must exist, have this role and be active.

        Raises:
            InvariantError: if not.
        """
        if worker not in self._known:
            raise InvariantError(4, f"{verb}: {worker.name} is not part of the topology")
        if worker.role is not role:
            raise InvariantError(4, f"{verb}: {worker.name} is no {role}")
        if not self.active(worker):
            raise InvariantError(4, f"{verb}: {worker.name} is passive")

    def enter(self, worker: Worker, verb: str, alone: bool = True) -> None:
        """The worker begins something; ``alone``: nothing else may run on it, else only the same verb.

        Raises:
            InvariantError: if something else runs.
        """
        running = self._busy[worker]
        if running and (alone or any(other != verb for other in running)):
            raise InvariantError(4, f"{verb}: {worker.name} is busy with {', '.join(running)}")
        running[verb] = running.get(verb, 0) + 1

    def leave(self, worker: Worker, verb: str) -> None:
        """The worker has ended it."""
        running = self._busy[worker]
        running[verb] -= 1
        if not running[verb]:
            del running[verb]

    def begin_switch_in(self, worker: Worker) -> None:
        """The devices leave home for ``worker``, which is not yet active.

        Raises:
            InvariantError: if it is no passive auxiliary, or a device is lent already or busy.
        """
        if worker not in self._known or worker.primary:
            raise InvariantError(4, f"switch_in: {worker.name} is no auxiliary worker of the topology")
        for device in worker.devices:
            if not self.started:
                raise InvariantError(4, "switch_in: the cluster has not been started")
            if device in self._away:
                raise InvariantError(4, f"switch_in of {worker.name}: device {device} is {self._away[device].name}'s")
            home = self._homes[device]
            if self._busy[home]:
                raise InvariantError(
                    4, f"switch_in of {worker.name}: {home.name} is busy ({', '.join(self._busy[home])})"
                )
        for device in worker.devices:
            self._away[device] = worker

    def end_switch_in(self, worker: Worker, succeeded: bool) -> None:
        """The auxiliary works, or everything is as before."""
        if succeeded:
            self._active_auxiliaries[worker] = None
        else:
            self._go_home(worker)

    def reset(self, worker: Worker) -> None:
        """A lost worker was replaced: an auxiliary is passive, and its devices are home.

        Raises:
            InvariantError: if a call is still open on it.
        """
        if self._busy[worker]:
            raise InvariantError(12, f"restart: calls are open on {worker.name} ({', '.join(self._busy[worker])})")
        if self._active_auxiliaries.pop(worker, worker) is None:
            self._go_home(worker)

    def begin_switch_out(self, worker: Worker) -> None:
        """The auxiliary goes to sleep.

        Raises:
            InvariantError: if it is not active or still busy.
        """
        if worker.primary or not self.active(worker):
            raise InvariantError(4, f"switch_out: {worker.name} is no active auxiliary")
        if self._busy[worker]:
            raise InvariantError(4, f"switch_out: {worker.name} is busy ({', '.join(self._busy[worker])})")
        del self._active_auxiliaries[worker]

    def end_switch_out(self, worker: Worker) -> None:
        """The devices are home again."""
        self._go_home(worker)

    def _go_home(self, worker: Worker) -> None:
        for device in worker.devices:
            del self._away[device]
