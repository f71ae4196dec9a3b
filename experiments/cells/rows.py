"""The CSV that holds one row per cell and policy; what is in it is not run again."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bidirl.core.topology import Direction
from experiments.cells.grid import Cell
from experiments.cells.job import simulate
from experiments.cells.line_up import ENTRIES, ORACLE, clairvoyant

FIELDS = (
    "cell",
    "policy",
    "throughput_tokens_per_second",
    "work_conserving_bound_tokens_per_second",
    "rollouter_on_trainpool",
    "trainer_on_rollpool",
    "detail",
)


def read_rows(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Rows by cell and policy; a line that was cut off is left out."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if None not in row.values() and None not in row]
    return {(row["cell"], row["policy"]): row for row in rows}


def row_of(cell: Cell, name: str, summary: Mapping[str, Any], detail: str = "") -> dict[str, str]:
    """What is kept of a run; all figures are simulated."""
    return {
        "cell": cell.name,
        "policy": name,
        "throughput_tokens_per_second": repr(float(summary["throughput_tokens_per_second"])),
        "work_conserving_bound_tokens_per_second": repr(float(summary["work_conserving_bound_tokens_per_second"])),
        **{d.value: str(summary["leases"][d.value]["admitted"]) for d in Direction},
        "detail": detail,
    }


def run_cells(path: Path, cells: Sequence[Cell], num_steps: int, seed: int, refine: bool) -> None:
    """Run what ``path`` lacks, and append it row by row. Progress goes to stderr."""
    known = read_rows(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(known.values())
        for number, cell in enumerate(cells, start=1):
            print(f"\r{number}/{len(cells)} {cell.name}".ljust(90), end="", file=sys.stderr, flush=True)
            for row in _missing_rows(cell, num_steps, seed, refine, known):
                known[cell.name, row["policy"]] = row
                writer.writerow(row)
                file.flush()
    print(file=sys.stderr)


def _missing_rows(
    cell: Cell, num_steps: int, seed: int, refine: bool, known: Mapping[tuple[str, str], dict[str, str]]
) -> Iterator[dict[str, str]]:
    finished = {}
    for entry in ENTRIES:
        row = known.get((cell.name, entry.name))
        if row is None:
            row = row_of(cell, entry.name, simulate(cell, *entry.make(cell), num_steps, seed))
            yield row
        finished[entry.name] = float(row["throughput_tokens_per_second"])
    if (cell.name, ORACLE) not in known:
        detail, summary = clairvoyant(cell, num_steps, seed, finished, refine)
        yield row_of(cell, ORACLE, summary, detail)
