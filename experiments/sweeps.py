"""Cells of the simulated evaluation: a config, options that differ, policies, seeds; and the claims that they test."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bidirl.cli.ablate import PolicyRuns, ratios, run_policies
from bidirl.cli.console import show
from bidirl.core.errors import BidirlError
from bidirl.runtime.outputs.report import NOT_RUN, Interval, Report, interval

HERE = Path(__file__).parent
A6000, H100, ABLATION = HERE / "a6000.yaml", HERE / "h100.yaml", HERE / "ablation.yaml"
PAPER = "arXiv 2607.09207"


def arguments(description: str | None) -> argparse.Namespace:
    """``--seeds`` and ``--output_dir``, the same for every experiment."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=5, help="seeds per cell (5)")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/experiments"), help="runs/experiments")
    return parser.parse_args()


def split(roll: int, train: int, trainer_layout: int = 2, rollouter_layout: int = 1) -> str:
    """The option that fixes a split."""
    return (
        f"--envelope={{class_path: FixedEnvelope, init_args: {{rollpool_devices: {roll}, trainpool_devices: {train}, "
        f"rollouter_layout_devices: {rollouter_layout}, trainer_layout_devices: {trainer_layout}}}}}"
    )


def lengths(**values: float) -> list[str]:
    """Options of the workload."""
    return [f"--simulation.workload.init_args.{key}={value}" for key, value in values.items()]


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting.

    Attributes:
        sweep: what is varied.
        value: of it.
        file: the config.
        options: that replace keys of the config.
        paper: the paper's figure for it, with where it is from; empty if it has none.
    """

    sweep: str
    value: str
    file: Path
    options: tuple[str, ...] = ()
    paper: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A cell's runs by policy, or why it was not run."""

    cell: Cell
    runs: tuple[PolicyRuns, ...]
    failure: str = ""

    def gain(self, policy: int, base: int = 0) -> Interval | None:
        """Throughput of one policy over another's, paired by seed."""
        return interval(ratios(self.runs[policy], self.runs[base])) if self.runs else None


def run_cells(cells: Sequence[Cell], policies: Sequence[str], seeds: int) -> list[Outcome]:
    """Run every cell; one that is refused or fails is kept with its reason."""
    outcomes = []
    for cell in cells:
        try:
            outcomes.append(Outcome(cell, tuple(run_policies(cell.file, cell.options, policies, range(seeds)))))
        except BidirlError as error:
            outcomes.append(Outcome(cell, (), str(error).partition("\n")[0][:120]))
    return outcomes


def cell_text(value: Interval | None, failure: str, form: str = ".3f") -> str:
    """An interval, or that it was not run."""
    return value.text(form) if value is not None else f"{NOT_RUN}: {failure}"


@dataclass(frozen=True, slots=True)
class Claim:
    """An ordering claim of the paper beside what the simulation says; ``holds`` is ``None`` where it was not run."""

    text: str
    paper: str
    ours: str
    holds: bool | None

    def row(self) -> tuple[str, str, str, str]:
        """Cells of the table of claims."""
        verdict = NOT_RUN if self.holds is None else "agrees" if self.holds else "disagrees"
        return self.text, self.paper, self.ours, verdict


def claims_report(name: str, title: str, claims: Sequence[Claim], seeds: int) -> Report:
    """The table of claims."""
    notes = (
        f"ours: simulated, means over {seeds} seeds; paper: {PAPER}, on hardware, against other systems",
        "length priors and stage times are ours (CONSTANTS, docs/experiments.md); nothing was tuned to agree",
    )
    return Report(f"{name}_claims", f"{title}: ordering claims (simulated)", ("claim", "paper", "ours", "verdict"),
                  tuple(claim.row() for claim in claims), notes)  # fmt: skip


def publish(reports: Sequence[Report], directory: Path) -> None:
    """Print and write every report."""
    for report in reports:
        show(report, directory)


def ordered(values: Sequence[Interval | None]) -> bool | None:
    """Whether means fall from the first to the last; ``None`` if one was not run."""
    known = [value.mean for value in values if value is not None]
    if len(known) < len(values):
        return None
    return all(a > b for a, b in pairwise(known))


def means(values: Sequence[Interval | None]) -> str:
    """Means, short."""
    return " / ".join(NOT_RUN if value is None else f"{value.mean:.3f}" for value in values)
