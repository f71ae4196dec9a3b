"""Gains of the planner and of the scheduler apart: splits × borrowing. ``python -m experiments.gains``. Simulated."""

from __future__ import annotations

from bidirl.runtime.outputs.report import Chart, Report, interval
from experiments.fig7 import MODELS, planned_rollpool
from experiments.sweeps import A6000, Cell, Outcome, arguments, publish, run_cells, split

POLICIES = ("NoBorrow", "ModelGuided", "PricedModelGuided")


def table(outcomes: list[Outcome], seeds: int) -> Report:
    """Every combination over the common split without borrowing, paired by seed."""
    rows, points = [], []
    for base, planned in zip(outcomes[::2], outcomes[1::2], strict=True):
        start = base.runs[0].values("throughput_tokens_per_second")
        for outcome in (base, planned):
            cells = []
            for runs in outcome.runs:
                own = runs.values("throughput_tokens_per_second")
                cells.append(interval([a / b for a, b in zip(own, start, strict=True)]))
            rows.append((outcome.cell.sweep, outcome.cell.value, *(cell.text(".3f") for cell in cells)))
            points.append(cells)
    names = tuple(f"{row[0]} {row[1]}" for row in rows)
    series = {policy: [cells[i] for cells in points] for i, policy in enumerate(POLICIES)}
    notes = (
        f"simulated; over the common split without borrowing; mean ± half of the 95% interval over {seeds} seeds",
        "the paper reports no such table; its end-to-end gains are at a common split",
    )
    return Report("gains", "Planner and scheduler apart (simulated)", ("model", "split", *POLICIES), tuple(rows), notes,
                  Chart("split", "over common split, NoBorrow", names, series))  # fmt: skip


def main() -> None:
    """Run, print, write."""
    given = arguments(__doc__)
    cells = []
    for model, (layout, _) in MODELS.items():
        for kind, roll in (("common", 8), ("planned", planned_rollpool(model))):
            options = (f"--simulation.model={model}", split(roll, 16 - roll, layout))
            cells.append(Cell(model, f"{kind} {roll} + {16 - roll}", A6000, options))
    publish([table(run_cells(cells, POLICIES, given.seeds), given.seeds)], given.output_dir)


if __name__ == "__main__":
    main()
