"""Deterministic faults of a simulated cluster: which call of which verb fails, after how long, with what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bidirl.core.errors import SwitchError, WorkerError

VERBS = (
    "start",
    "generate",
    "interrupt",
    "begin_batch",
    "train_chunks",
    "merge_gradients",
    "optimizer_step",
    "export_weights",
    "load_weights",
    "switch_in",
    "switch_out",
)


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call of a verb. ``worker`` is its name (the first one's for a side, ``""`` for a verb without a worker).

    ``number`` counts the calls of this verb on this worker, from 0.
    """

    verb: str
    worker: str
    number: int
    now_seconds: float


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a call: it raises ``error`` after ``after_seconds`` (or when it would have ended, if earlier)."""

    error: WorkerError
    after_seconds: float = 0.0


FaultPlan = Callable[[CallSite], Fault | None]
"""Asked at the beginning of every call; must depend on nothing but the call site."""


class ScriptedFaults:
    """Fails the calls that are listed as ``(verb, worker, number, after_seconds)``; ``worker`` ``"*"`` is any.

    A failed ``switch_in`` raises ``SwitchError`` (rolled back), every other verb ``WorkerError``.
    """

    def __init__(self, calls: Sequence[tuple[str, str, int, float]]) -> None:
        for verb, *_ in calls:
            if verb not in VERBS:
                raise ValueError(f"no verb {verb!r}: use one of {', '.join(VERBS)}")
        self.calls = tuple(calls)

    def __call__(self, site: CallSite) -> Fault | None:
        for verb, worker, number, after_seconds in self.calls:
            if verb == site.verb and worker in ("*", site.worker) and number == site.number:
                kind = SwitchError if verb == "switch_in" else WorkerError
                return Fault(kind(f"scripted fault: {verb} call {number} on {site.worker or 'cluster'}"), after_seconds)
        return None
