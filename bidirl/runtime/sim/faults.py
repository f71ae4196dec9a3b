"""Deterministic faults of a simulated cluster: which call of which verb fails, after how long, with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

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
    "restart",
    "reward",
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
    """What happens to a call: it raises ``error`` after ``after_seconds`` (or when it would have ended, if earlier).

    Attributes:
        error: what it raises; ``None`` only makes it ``after_seconds`` slower.
        after_seconds: see above.
        kills: the worker is dead from then on: every other call on it fails too, until it is restarted.
        loses_reply: the call does its whole work, and raises then.

    A fault of ``reward`` is not raised: the reward function of that group failed, with ``error`` as its message.
    """

    error: WorkerError | None
    after_seconds: float = 0.0
    kills: bool = False
    loses_reply: bool = False


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


class SeededFaults:
    """Faults at random, a pure function of the seed and the call site.

    Args:
        seed: of the coins.
        probability: that a call fails; the same for every verb that is named in ``verbs``.
        verbs: verbs that may fail.
        longest_seconds: faults come within this time after the call began.
        not_before_seconds: calls before this time are spared.
        spared_workers: names of workers whose calls are spared.

    ``injected`` counts what was injected, by verb and kind: ``error`` (this call raises), ``death`` (the worker is
    lost), ``lost_reply`` (the work is done, the answer is lost) and ``slow``.
    """

    def __init__(
        self,
        seed: int,
        probability: float,
        verbs: Sequence[str],
        longest_seconds: float = 2.0,
        not_before_seconds: float = 0.0,
        spared_workers: Sequence[str] = (),
    ) -> None:
        self.seed = seed
        self.probability = probability
        self.verbs = tuple(verbs)
        self.longest_seconds = longest_seconds
        self.not_before_seconds = not_before_seconds
        self.spared_workers = tuple(spared_workers)
        self.injected: Counter[tuple[str, str]] = Counter()

    def __call__(self, site: CallSite) -> Fault | None:
        if (
            site.verb not in self.verbs
            or site.worker in self.spared_workers
            or site.now_seconds < self.not_before_seconds
        ):
            return None
        coins = _coins(f"{self.seed} {site.verb} {site.worker} {site.number}")
        if coins[0] >= self.probability:
            return None
        kind = ("error", "death", "lost_reply", "slow")[int(coins[1] * 4)]
        if kind == "death" and not site.worker:
            kind = "error"
        self.injected[site.verb, kind] += 1
        after_seconds = coins[2] * self.longest_seconds
        if kind == "slow" and site.verb != "reward":
            return Fault(None, after_seconds)
        rolled_back = site.verb == "switch_in" and kind == "error"
        error = (SwitchError if rolled_back else WorkerError)(f"{kind} in {site.verb} {site.number} of {site.worker}")
        return Fault(error, after_seconds, kills=kind == "death", loses_reply=kind == "lost_reply")


def _coins(text: str) -> tuple[float, float, float]:
    digest = sha256(text.encode()).digest()
    first, second, third = (int.from_bytes(digest[i : i + 8], "big") / 2**64 for i in (0, 8, 16))
    return first, second, third
