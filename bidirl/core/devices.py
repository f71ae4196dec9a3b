"""Who uses which device, and for how long: the accounting of device-seconds (invariants 4 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from bidirl.core.errors import InvariantError
from bidirl.core.topology import Role, Worker


class Activity(StrEnum):
    """What a device does at one moment. ``switch`` is changing roles or loading weights."""

    TRAIN = "train"
    ROLLOUT = "rollout"
    BORROWED_TRAIN = "borrowed_train"
    BORROWED_ROLLOUT = "borrowed_rollout"
    SWITCH = "switch"
    IDLE = "idle"


PRODUCTIVE = (Activity.TRAIN, Activity.ROLLOUT, Activity.BORROWED_TRAIN, Activity.BORROWED_ROLLOUT)


def work_activity(worker: Worker) -> Activity:
    """The activity of a worker's devices while it works."""
    if worker.primary:
        return Activity.ROLLOUT if worker.role is Role.ROLLOUTER else Activity.TRAIN
    return Activity.BORROWED_ROLLOUT if worker.role is Role.ROLLOUTER else Activity.BORROWED_TRAIN


class DeviceBoard:
    """Current activity and owner of every device. Every change is an interval handed to ``sink``.

    The owner is the lease that holds the device, or ``None`` for its home role.

    Attributes:
        free: devices that are idle and not lent. It and ``lent`` are sets that live: not to be changed by others.
        lent: devices that a lease holds.
    """

    def __init__(
        self,
        devices: Iterable[int],
        now_seconds: Callable[[], float],
        sink: Callable[[int, str, float, float, str], None],
    ) -> None:
        self._now = now_seconds
        self._sink = sink
        start = now_seconds()
        self.started_seconds = start
        self._current = dict.fromkeys(devices, (Activity.IDLE, start, ""))
        self._owner: dict[int, int | None] = dict.fromkeys(self._current)
        self.free = set(self._current)
        self.lent: set[int] = set()
        self._totals = {device: dict.fromkeys(Activity, 0.0) for device in self._current}

    def activity(self, device: int) -> Activity:
        """What ``device`` does now."""
        return self._current[device][0]

    def owner(self, device: int) -> int | None:
        """The lease that holds ``device``, or ``None``."""
        return self._owner[device]

    def grant(self, devices: Iterable[int], lease_id: int) -> None:
        """Hand devices to a lease.

        Raises:
            InvariantError: if one is not idle or already lent (4).
        """
        for device in devices:
            if self._owner[device] is not None:
                raise InvariantError(4, f"device {device} is already lent to lease {self._owner[device]}")
            if self.activity(device) is not Activity.IDLE:
                raise InvariantError(4, f"device {device} is busy ({self.activity(device)}), it cannot be lent")
            self._owner[device] = lease_id
            self.lent.add(device)
            self._refresh(device)

    def give_back(self, devices: Iterable[int], lease_id: int) -> None:
        """End a lease's hold on its devices."""
        for device in devices:
            if self._owner[device] != lease_id:
                raise InvariantError(4, f"device {device} is not held by lease {lease_id}")
            self._owner[device] = None
            self.lent.remove(device)
            self._refresh(device)

    def set(self, devices: Iterable[int], activity: Activity, detail: str = "", lease_id: int | None = None) -> None:
        """Devices change activity now, on behalf of ``lease_id`` (``None``: of their home role).

        Raises:
            InvariantError: if another owner holds one of them (4).
        """
        now = self._now()
        for device in devices:
            if self._owner[device] != lease_id:
                raise InvariantError(4, f"device {device} belongs to lease {self._owner[device]}, not to {lease_id}")
            before, _, old_detail = self._current[device]
            if before is activity and old_detail == detail:
                continue
            self._close(device, now)
            self._current[device] = (activity, now, detail)
            self._refresh(device)

    def _refresh(self, device: int) -> None:
        if self._owner[device] is None and self.activity(device) is Activity.IDLE:
            self.free.add(device)
        else:
            self.free.discard(device)

    def flush(self) -> None:
        """Close all open intervals now, so that totals and trace are complete."""
        now = self._now()
        for device, (activity, _, detail) in list(self._current.items()):
            self._close(device, now)
            self._current[device] = (activity, now, detail)

    def _close(self, device: int, now: float) -> None:
        activity, since, detail = self._current[device]
        if now > since:
            self._totals[device][activity] += now - since
            self._sink(device, activity.value, since, now, detail)

    def seconds(self, devices: Iterable[int] | None = None) -> dict[str, float]:
        """Device-seconds by activity up to now, over ``devices`` (default: all)."""
        now = self._now()
        result = dict.fromkeys((activity.value for activity in Activity), 0.0)
        for device in self._totals if devices is None else devices:
            for activity, seconds in self._totals[device].items():
                result[activity.value] += seconds
            current, since, _ = self._current[device]
            result[current.value] += now - since
        return result


def productive_seconds(seconds: dict[str, float]) -> float:
    """Device-seconds that did train or rollout work."""
    return sum(seconds[activity.value] for activity in PRODUCTIVE)
