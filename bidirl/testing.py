"""Conformance checks for a researcher's own policy, splitter, stage model or envelope.

Each check takes an instance, raises :class:`~bidirl.core.errors.PolicyError` that lists every fault with the line to
fix, and returns ``None`` when there is none. They are what the shipped classes are tested with.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import math
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from bidirl.core.errors import ConfigError, PolicyError
from bidirl.core.interfaces import AdmissionPolicy, Envelope, Splitter, StageModel
from bidirl.core.opportunity import Decision, LeaseView
from bidirl.core.topology import Topology
from bidirl.core.work import RolloutUsage, TrainerWork
from bidirl.testing_views import (
    GROUP_VIEWS,
    OPPORTUNITIES,
    PULL_VIEWS,
    ROLLOUT_USAGES,
    ROLLOUT_WORKS,
    TRAINER_USAGES,
    TRAINER_WORKS,
)

_CLOCKS = ("time.time", "time.monotonic", "time.perf_counter", "time.time_ns", "time.monotonic_ns")


class _Faults:
    """Collects faults of one object and names the line of the method to fix."""

    def __init__(self, subject: object) -> None:
        self.cls = type(subject)
        self.found: list[str] = []

    def add(self, method: str, what: str) -> None:
        text = f"{_line(self.cls, method)}: {self.cls.__qualname__}.{method} {what}"
        if text not in self.found:
            self.found.append(text)

    def report(self) -> None:
        if self.found:
            raise PolicyError("\n".join(self.found))


def _line(cls: type, method: str) -> str:
    function = getattr(cls, method, cls)
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else f"{cls.__module__}"


@contextmanager
def _no_clock() -> Iterator[None]:
    def refuse() -> float:
        raise PolicyError("reads a clock: take the time from now_seconds")

    with ExitStack() as stack:
        for name in _CLOCKS:
            stack.enter_context(mock.patch(name, refuse))
        yield


def _global_generators() -> tuple[object, ...]:
    state: Any = np.random.get_state(legacy=False)
    return random.getstate(), state["state"]["pos"], state["state"]["key"].tobytes()


def _has_generator(subject: object, depth: int = 3) -> bool:
    """Whether the object, or one that it wraps, holds a random generator of its own."""
    if isinstance(subject, (np.random.Generator, random.Random)):
        return True
    return depth > 0 and any(_has_generator(value, depth - 1) for value in getattr(subject, "__dict__", {}).values())


def _check_arguments(faults: _Faults) -> None:
    """Keyword-only, annotated, no ``**kwargs``: what config parsing builds on."""
    init = faults.cls.__init__
    if init is object.__init__:
        return
    for parameter in list(inspect.signature(init).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            faults.add(
                "__init__",
                f"takes {'*' * (2 if parameter.kind is parameter.VAR_KEYWORD else 1)}{parameter.name}: "
                "name every argument, or a mistyped setting is accepted and ignored",
            )
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            faults.add("__init__", f"takes {parameter.name} by position: put it after *")
        elif parameter.annotation is parameter.empty:
            faults.add("__init__", f"does not annotate {parameter.name}: write {parameter.name}: <type>")


def _call(faults: _Faults, method: str, function: Callable[[], Any], what: str) -> Any:
    """Call with clocks forbidden; report an exception or a use of the global generators as a fault."""
    before = _global_generators()
    try:
        with _no_clock():
            result = function()
    except PolicyError as error:
        faults.add(method, str(error))
        return None
    except Exception as error:
        faults.add(method, f"raised {type(error).__name__}: {error} for {what}")
        return None
    if _global_generators() != before:
        faults.add(method, "draws from a global random generator: take a seed in __init__")
    return result


def _pure(faults: _Faults, method: str, subject: Any, view: Any) -> Any:
    """Call ``method`` repeatedly: same result, and the view as before.

    A subject with a generator of its own is compared with a copy from before the call, any other with itself as well.
    """
    before = repr(view)
    twin = copy.deepcopy(subject)
    results = [_call(faults, method, partial(getattr(each, method), view), before[:160]) for each in (subject, twin)]
    if not _has_generator(subject):
        results.append(_call(faults, method, partial(getattr(subject, method), view), before[:160]))
    if any(repr(result) != repr(results[0]) for result in results[1:]):
        faults.add(method, f"is not deterministic: {results[0]!r}, then {results[-1]!r} for the same view")
    if repr(view) != before:
        faults.add(method, "changes the view that it is given: views are read-only")
    return results[0]


def check_policy(policy: AdmissionPolicy) -> None:
    """Deterministic, pure, well-formed decisions, and an ``__init__`` that a config can fill.

    Raises:
        PolicyError: every fault on its own line, beginning with ``file:line`` of what to fix.
    """
    faults = _Faults(policy)
    if not isinstance(policy, AdmissionPolicy):
        raise PolicyError(
            f"{_line(type(policy), '__init__')}: {type(policy).__qualname__} must subclass AdmissionPolicy"
        )
    _check_arguments(faults)
    for opportunity in OPPORTUNITIES:
        decision = _pure(faults, "decide", policy, opportunity)
        if decision is not None or not faults.found:
            _check_decision(faults, decision)
        lease = LeaseView(1, opportunity.direction, 0.0, opportunity.now_seconds, 1, True)
        for state in (opportunity, None):
            verdict = _call(faults, "release", partial(policy.release, lease, state), "a lease")
            if verdict is not None and not isinstance(verdict, bool):
                faults.add("release", f"returned {verdict!r}: return True or False")
    faults.report()


def _check_decision(faults: _Faults, decision: Any) -> None:
    if not isinstance(decision, Decision):
        faults.add("decide", f"returned {type(decision).__name__}: return a Decision")
        return
    if not isinstance(decision.admit, bool):
        faults.add("decide", f"returned admit={decision.admit!r}: use True or False")
    if not decision.reason:
        faults.add("decide", "returned an empty reason: say why, for the decision log")
    if decision.admit:
        for name, value in (("benefit_seconds", decision.benefit_seconds), ("cost_seconds", decision.cost_seconds)):
            if math.isinf(value):
                faults.add("decide", f"admits with {name}={value}: must be finite, or nan if not predicted")
        for name, value in decision.numbers.items():
            if not math.isfinite(value):
                faults.add("decide", f"admits with numbers[{name!r}]={value}: log finite numbers only")


def check_splitter(splitter: Splitter) -> None:
    """Deterministic, pure; names missing groups at most once; pulls between 0 and what is queued.

    Raises:
        PolicyError: every fault on its own line, beginning with ``file:line`` of what to fix.
    """
    faults = _Faults(splitter)
    if not isinstance(splitter, Splitter):
        raise PolicyError(f"{_line(type(splitter), '__init__')}: {type(splitter).__qualname__} must subclass Splitter")
    _check_arguments(faults)
    for view in GROUP_VIEWS:
        chosen = _pure(faults, "split_groups", splitter, view)
        known = {group.group_id for group in view.missing}
        if not isinstance(chosen, tuple):
            faults.add("split_groups", f"returned {type(chosen).__name__}: return a tuple of group ids")
        elif len(set(chosen)) != len(chosen) or not set(chosen) <= known:
            faults.add("split_groups", f"returned {chosen}: name groups of view.missing, each once")
        elif view.first and view.primary_replicas == 0 and set(chosen) != known:
            faults.add("split_groups", "leaves groups to primaries that do not exist (primary_replicas is 0): name all")
    for pull in PULL_VIEWS:
        count = _pure(faults, "pull_chunks", splitter, pull)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= len(pull.queued.chunks):
            faults.add("pull_chunks", f"returned {count!r}: return an int from 0 to {len(pull.queued.chunks)}")
    faults.report()


def check_stage_model(model: StageModel[Any, Any]) -> None:
    """Usable seconds, limits of ``predict``, replicas never hurt, learning works, parameters survive JSON.

    Whether it is a rollout or a trainer model is found out by asking. The instance is not changed.

    Raises:
        PolicyError: every fault on its own line, beginning with ``file:line`` of what to fix.
    """
    faults = _Faults(model)
    if not isinstance(model, StageModel):
        raise PolicyError(f"{_line(type(model), '__init__')}: {type(model).__qualname__} must subclass StageModel")
    _check_arguments(faults)
    model = copy.deepcopy(model)
    try:
        model.predict_usage(RolloutUsage(1.0, 1.0, 1.0, 1.0))
        works, usages, empty = ROLLOUT_WORKS, ROLLOUT_USAGES, dataclasses.replace(ROLLOUT_WORKS[0], num_sequences=0)
    except Exception:  # not a rollout model
        works, usages, empty = TRAINER_WORKS, TRAINER_USAGES, TrainerWork(())  # type: ignore[assignment]
    for round_number in range(20):
        for usage in usages:
            _call(faults, "observe", partial(model.observe, usage, 0.5 + 0.1 * (round_number % 3)), repr(usage)[:160])
    _check_predictions(faults, model, works, usages, empty)
    _check_parameters(faults, model, works)
    faults.report()


def _check_predictions(faults: _Faults, model: Any, works: Any, usages: Any, empty: Any) -> None:
    for usage in usages:
        seconds = _call(faults, "predict_usage", partial(model.predict_usage, usage), repr(usage)[:160])
        if seconds is not None and not 0.0 <= seconds < math.inf:
            faults.add("predict_usage", f"returned {seconds!r}: return finite seconds of at least 0")
    for work in works:
        previous = math.inf
        for replicas in (1, 2, 4, 8):
            seconds = _pure_predict(faults, model, work, replicas)
            if seconds is None or not 0.0 <= seconds < math.inf:
                faults.add(
                    "predict", f"returned {seconds!r} for {replicas} replicas: return finite seconds of at least 0"
                )
            elif seconds > previous * (1 + 1e-9):
                faults.add("predict", f"grows from {previous} to {seconds} when replicas double to {replicas}")
            else:
                previous = seconds
        if model.ready and _pure_predict(faults, model, work, 0) != math.inf:
            faults.add("predict", "must return inf for some work and no replica")
    if _pure_predict(faults, model, empty, 2) != 0.0:
        faults.add("predict", "must return 0 for no work")


def _pure_predict(faults: _Faults, model: Any, work: Any, replicas: int) -> Any:
    first = _call(faults, "predict", lambda: model.predict(work, replicas), repr(work)[:160])
    second = _call(faults, "predict", lambda: model.predict(work, replicas), repr(work)[:160])
    if first != second:
        faults.add("predict", f"is not deterministic: {first!r}, then {second!r}")
    return first


def _check_parameters(faults: _Faults, model: Any, works: Any) -> None:
    try:
        state = json.loads(json.dumps(model.parameters(), allow_nan=False))
    except (TypeError, ValueError) as error:
        faults.add("parameters", f"is not JSON-serialisable: {error}")
        return
    restored = copy.deepcopy(model)
    _call(faults, "load_parameters", lambda: restored.load_parameters(state), "its own parameters()")
    for work in works:
        if restored.predict(work, 2) != model.predict(work, 2):
            faults.add("load_parameters", "does not restore what parameters() returned: predictions differ")


def check_envelope(envelope: Envelope) -> None:
    """The same placement each time, every device in one pool, workers inside their pools without overlap per role.

    Raises:
        PolicyError: every fault on its own line, beginning with ``file:line`` of what to fix.
    """
    faults = _Faults(envelope)
    if not isinstance(envelope, Envelope):
        raise PolicyError(f"{_line(type(envelope), '__init__')}: {type(envelope).__qualname__} must subclass Envelope")
    _check_arguments(faults)
    try:
        topology = envelope.topology()
        again = envelope.topology()
    except ConfigError:
        raise
    except Exception as error:
        faults.add("topology", f"raised {type(error).__name__}: {error}; raise ConfigError for a wrong setting")
        faults.report()
        return
    if not isinstance(topology, Topology):
        faults.add("topology", f"returned {type(topology).__name__}: return a Topology")
        faults.report()
    if topology != again:
        faults.add("topology", "is not deterministic: two calls differ")
    if sorted((*topology.rollpool, *topology.trainpool)) != list(range(topology.num_devices)):
        faults.add("topology", "must put each of the devices 0 … n−1 into exactly one pool")
    if not topology.primary_trainers:
        faults.add("topology", "has no primary trainer")
    if not topology.primary_rollouters and not topology.auxiliary_rollouters:
        faults.add("topology", "has no rollouter at all")
    for workers in (
        topology.primary_rollouters,
        topology.primary_trainers,
        topology.auxiliary_rollouters,
        topology.auxiliary_trainers,
    ):
        devices = [device for worker in workers for device in worker.devices]
        pools = {"rollpool": set(topology.rollpool), "trainpool": set(topology.trainpool)}
        if len(set(devices)) != len(devices):
            faults.add("topology", f"puts two {workers[0].role} replicas on one device")
        if any(not set(worker.devices) <= pools[worker.pool] for worker in workers):
            faults.add("topology", f"places a {workers[0].role} outside its pool")
    faults.report()
