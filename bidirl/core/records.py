"""What a run reports while it happens. Core calls a :class:`Recorder`; where the rows go is decided elsewhere.

Rows are flat mappings of JSON-compatible values. A recorder never changes the run: it is not asked anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


class Recorder:
    """A recorder that keeps nothing; subclass it and override what you keep. Called by the coordinator only.

    All times are seconds since the run started. Calls come in the order in which things happened, except that an
    activity is reported when it ends.
    """

    def activity(self, device: int, activity: str, start_seconds: float, end_seconds: float, detail: str = "") -> None:
        """One device did one thing from ``start_seconds`` to ``end_seconds``.

        ``activity`` is ``train``, ``rollout``, ``borrowed_train``, ``borrowed_rollout``, ``switch`` or ``idle``; the
        activities of one device do not overlap and leave no gap (invariants 4 and 9).
        """

    def decision(self, row: Row) -> None:
        """An opportunity with its inputs and the verdict of the policy; enough to replay it offline."""

    def ledger(self, row: Row) -> None:
        """A group was issued, consumed or dropped (invariant 1)."""

    def step(self, row: Mapping[str, float]) -> None:
        """The metrics of one version, after its optimizer step; holds ``version`` and ``time_seconds``."""

    def lease(self, row: Row) -> None:
        """A lease was closed: direction, times, costs, predicted and realised benefit."""

    def progress(self, text: str = "", **fields: Any) -> None:
        """What is going on, for a person who watches."""

    def close(self, summary: Row) -> None:
        """The run is over, well or badly; ``summary`` is as complete as it could be. Called once."""


class TeeRecorder(Recorder):
    """Passes every call on to several recorders, in order."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self.recorders = tuple(recorders)

    def activity(self, device: int, activity: str, start_seconds: float, end_seconds: float, detail: str = "") -> None:
        """See :class:`Recorder`."""
        for recorder in self.recorders:
            recorder.activity(device, activity, start_seconds, end_seconds, detail)

    def decision(self, row: Row) -> None:
        """See :class:`Recorder`."""
        for recorder in self.recorders:
            recorder.decision(row)

    def ledger(self, row: Row) -> None:
        """See :class:`Recorder`."""
        for recorder in self.recorders:
            recorder.ledger(row)

    def step(self, row: Mapping[str, float]) -> None:
        """See :class:`Recorder`."""
        for recorder in self.recorders:
            recorder.step(row)

    def lease(self, row: Row) -> None:
        """See :class:`Recorder`."""
        for recorder in self.recorders:
            recorder.lease(row)

    def progress(self, text: str = "", **fields: Any) -> None:
        """See :class:`Recorder`."""
        for recorder in self.recorders:
            recorder.progress(text, **fields)

    def close(self, summary: Row) -> None:
        """Close all, the last first, even if one fails."""
        failure: BaseException | None = None
        for recorder in reversed(self.recorders):
            try:
                recorder.close(summary)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
