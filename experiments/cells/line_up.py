"""The policies that are compared, and the clairvoyant reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bidirl.core.interfaces import AdmissionPolicy, Splitter
from bidirl.policies.baselines import NoBorrow, Opportunistic, RolloutOnly, TrainOnly
from bidirl.policies.hindsight import HindsightPlan, PerDirection
from bidirl.policies.model_guided import ModelGuided
from bidirl.policies.priced import PricedModelGuided
from bidirl.policies.splitters import CapacitySplit, ResidualLengthSplit
from experiments.cells.grid import Cell
from experiments.cells.job import simulate

ORACLE = "oracle (hindsight)"
BASELINE, PAPER, OPPORTUNISTIC, OURS = "NoBorrow", "ModelGuided", "Opportunistic", "PricedModelGuided"


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in the tables, and how to build its policy and splitter for a cell."""

    name: str
    make: Callable[[Cell], tuple[AdmissionPolicy, Splitter]]


def _residual(cell: Cell) -> Splitter:
    return ResidualLengthSplit(
        expected_tokens=cell.max_response_tokens / 5, max_response_tokens=cell.max_response_tokens
    )


ENTRIES = (
    Entry(BASELINE, lambda cell: (NoBorrow(), CapacitySplit())),
    Entry(OPPORTUNISTIC, lambda cell: (Opportunistic(), CapacitySplit())),
    Entry(PAPER, lambda cell: (ModelGuided(), CapacitySplit())),
    Entry("RolloutOnly(ModelGuided)", lambda cell: (RolloutOnly(), CapacitySplit())),
    Entry("TrainOnly(ModelGuided)", lambda cell: (TrainOnly(), CapacitySplit())),
    Entry(OURS, lambda cell: (PricedModelGuided(), CapacitySplit())),
    Entry(f"{OURS} + ResidualLengthSplit", lambda cell: (PricedModelGuided(), _residual(cell))),
)
"""Every row of the tables but the reference."""

SEARCHED = (
    Entry("PerDirection(rollout=Opportunistic)", lambda c: (PerDirection(rollout=Opportunistic()), CapacitySplit())),
    Entry("PerDirection(training=Opportunistic)", lambda c: (PerDirection(training=Opportunistic()), CapacitySplit())),
    Entry(
        "PerDirection(rollout=Priced, training=Opportunistic)",
        lambda c: (PerDirection(rollout=PricedModelGuided(), training=Opportunistic()), CapacitySplit()),
    ),
    Entry(
        "PerDirection(rollout=Opportunistic, training=Priced)",
        lambda c: (PerDirection(rollout=Opportunistic(), training=PricedModelGuided()), CapacitySplit()),
    ),
)
"""Run for the reference only."""


def throughput(summary: Mapping[str, Any]) -> float:
    """Tokens per second."""
    return float(summary["throughput_tokens_per_second"])


def clairvoyant(
    cell: Cell, num_steps: int, seed: int, finished: Mapping[str, float], refine: bool
) -> tuple[str, Mapping[str, Any]]:
    """The schedule that hindsight chooses, and its run.

    The best of every entry (``finished``: their throughputs) and of :data:`SEARCHED` on the very lengths and costs of
    the cell. With ``refine`` the winner is then improved step by step: for every step and direction, refusing there is
    kept if the whole run got faster. It is attainable, and at least as good as every row; another schedule may be
    better still, so regret against it is a lower bound.
    """
    makers = {entry.name: entry for entry in (*ENTRIES, *SEARCHED)}
    runs = {entry.name: simulate(cell, *entry.make(cell), num_steps, seed) for entry in SEARCHED}
    scores = {**finished, **{name: throughput(run) for name, run in runs.items()}}
    best = max(scores, key=lambda name: scores[name])
    policy, splitter = makers[best].make(cell)
    winner = runs[best] if best in runs else simulate(cell, policy, splitter, num_steps, seed)
    if not refine:
        return best, winner
    plan: tuple[list[int], list[int]] = ([], [])
    for version in range(num_steps):
        for direction in (0, 1):
            trial = ([*plan[0]], [*plan[1]])
            trial[direction].append(version)
            hindsight = HindsightPlan(inner=policy, refused_rollout=trial[0], refused_training=trial[1])
            run = simulate(cell, hindsight, splitter, num_steps, seed)
            if throughput(run) > throughput(winner):
                plan, winner = trial, run
    return f"{best}; not R-on-T at {plan[0]}, not T-on-R at {plan[1]}", winner
