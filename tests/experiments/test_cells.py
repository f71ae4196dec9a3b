"""The grid of cells: its size, resuming from a CSV that was cut off, and the report."""

from __future__ import annotations

import csv
from pathlib import Path

from experiments.cells.grid import grid, hopeless, quick
from experiments.cells.line_up import BASELINE, ENTRIES, ORACLE, PAPER
from experiments.cells.report import complete, losses, markdown, policy_lines
from experiments.cells.rows import FIELDS, read_rows


def rows_for(names: list[str], ratio: dict[str, float]) -> dict[tuple[str, str], dict[str, str]]:
    policies = [entry.name for entry in ENTRIES] + [ORACLE]
    return {
        (cell, policy): dict(
            zip(FIELDS, (cell, policy, repr(1000.0 * ratio.get(policy, 1.0)), "2000.0", "1", "2", ""), strict=True)
        )
        for cell in names
        for policy in policies
    }


def test_grid_has_enough_cells_with_unique_names_and_all_values() -> None:
    names = [cell.name for cell in [*grid(), *hopeless()]]
    assert len(grid()) >= 200 and len(set(names)) == len(names)
    assert {cell.sigma for cell in grid()} == {0.5, 0.75, 1.0}
    assert {cell.staleness for cell in grid()} == {0.0, 0.5, 1.0, 2.0}
    assert {cell.testbed for cell in grid()} == {"a6000", "h100"}
    assert len({cell.rollpool_devices for cell in grid()}) == 3
    assert all(cell in grid() or cell in hopeless() for cell in quick())


def test_report_shows_regret_and_losses() -> None:
    names = [cell.name for cell in grid()[:3]]
    rows = rows_for(names, {PAPER: 0.9, ORACLE: 1.2})
    lines = {line.policy: line for line in policy_lines(rows, names)}
    assert abs(lines[PAPER].mean_regret - 0.25) < 1e-9 and lines[PAPER].cells_below == 3
    assert lines[ORACLE].mean_regret == 0.0
    assert [cell for cell, _ in losses(rows, names, PAPER)] == names and not losses(rows, names, BASELINE)
    report = markdown(rows, names, names[:1], 8)
    assert "simulated" in report and f"## Where {PAPER} is slower than no borrowing: 3 cells" in report


def test_a_cell_is_complete_only_with_every_policy(tmp_path: Path) -> None:
    cell = grid()[0]
    rows = rows_for([cell.name], {})
    path = tmp_path / "cells.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows.values())
    assert complete(read_rows(path), [cell]) == [cell.name]
    path.write_text(path.read_text().rstrip()[:-20])  # cut off in the middle of the last row
    assert complete(read_rows(path), [cell]) == []
