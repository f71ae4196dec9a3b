"""Calibration of a simulated cluster from what a run measured, real or simulated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.core.work import SwitchCost
from bidirl.models.sim_timings import RolloutTimings, SimTimings, timings_from_mapping
from bidirl.models.trainer_base import SubStageCost

VERBS = {
    "begin_batch": "begin_batch_seconds",
    "optimizer_step": "optimizer_step_seconds",
    "export_weights": "export_seconds",
    "load_weights": "load_weights_seconds",
    "train_chunks_overhead": "train_overhead_seconds",
    "generate_overhead": "generate_overhead_seconds",
}
"""Keys of a summary's ``verb_seconds``, and the timing that each measures."""


def timings_from_summary(summary: Mapping[str, Any], base: SimTimings | None = None) -> SimTimings:
    """Timings from a run's ``summary.json``: its ``estimates``, and the means in its ``verb_seconds``.

    What the summary does not hold keeps the values of ``base``.

    Raises:
        ConfigError: if the summary has no estimates of calibrated stage models.
    """
    timings = _at_the_mean(timings_from_estimates(summary.get("estimates", {}), base), summary)
    verbs: Mapping[str, Mapping[str, float]] = summary.get("verb_seconds", {})
    found: dict[str, Any] = {name: verbs[verb]["mean"] for verb, name in VERBS.items() if verb in verbs}
    where = f"calibrated from a run in world {summary.get('world', '?')}, {summary.get('num_devices', '?')} devices"
    return replace(timings, source=where, **found)


def _at_the_mean(timings: SimTimings, summary: Mapping[str, Any]) -> SimTimings:
    """Scale both stages so that their predictions add up to what was measured."""
    errors: Mapping[str, Mapping[str, float]] = summary.get("stage_model_error", {})
    rollout, train = (errors.get(stage, {}).get("measured_over_predicted") for stage in ("rollout", "train"))
    if rollout is not None and rollout > 0:
        timings = replace(timings, rollout=timings.rollout.scaled(rollout))
    if train is not None and train > 0:
        stages: dict[str, Any] = {stage.value: getattr(timings, stage.value).scaled(train) for stage in SubStage}
        timings = replace(timings, **stages)
    return timings


def timings_from_estimates(parameters: Mapping[str, Any], base: SimTimings | None = None) -> SimTimings:
    """Timings from the ``estimates`` of a run's summary: fitted stage models and measured switch costs.

    What the estimates do not hold (optimizer step, export, weight load, overheads) keeps the values of ``base``.

    Raises:
        ConfigError: if the run's stage models have no coefficients of the calibrated forms.
    """
    try:
        rollout = parameters["rollout"]["coefficients"]
        trainer = parameters["train"]["coefficients"]
        sums = parameters["switch_costs"]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"these estimates do not come from calibrated stage models: {error} is missing") from None
    values: dict[str, Any] = {"rollout": RolloutTimings(**rollout)}
    for stage in SubStage:
        values[stage.value] = SubStageCost(*(trainer[f"{stage}.{f.name}"] for f in fields(SubStageCost)))
    current = base or SimTimings()
    for direction in Direction:
        old = current.switch(direction)
        parts = []
        for part, before in (("in", old.in_seconds), ("out", old.out_seconds), ("grad", old.grad_seconds)):
            total, weight = sums.get(f"{direction}.{part}", (0.0, 0.0))
            parts.append(total / weight if weight else before)
        values[direction.value] = SwitchCost(*parts)
    return replace(current, **values)


def load_timings(path: str) -> SimTimings:
    """Timings from a JSON file: those of :meth:`SimTimings.to_mapping`, or the ``summary.json`` of a run.

    Raises:
        ConfigError: naming the file and what is wrong in it.
    """
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"timings file {path} cannot be read: {error}") from None
    if not isinstance(values, Mapping):
        raise ConfigError(f"timings file {path} does not hold a mapping")
    try:
        return timings_from_summary(values) if "world" in values else timings_from_mapping(values)
    except ConfigError as error:
        raise ConfigError(f"timings file {path}: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"timings file {path} does not have the form of timings or a summary: {error!r}") from None
