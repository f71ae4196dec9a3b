"""``python -m experiments.cells``: run the grid (or continue it), write CSV and Markdown, print the report."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.cells.grid import grid, hopeless, quick
from experiments.cells.report import complete, markdown
from experiments.cells.rows import read_rows, run_cells


def main() -> None:
    """Parse, run, report."""
    parser = argparse.ArgumentParser(prog="python -m experiments.cells", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a dozen cells instead of all")
    parser.add_argument("--refine", action="store_true", help="improve the clairvoyant reference step by step (slow)")
    parser.add_argument("--steps", type=int, default=8, help="optimizer steps per run")
    parser.add_argument("--seed", type=int, default=0, help="of lengths and rewards")
    arguments = parser.parse_args()
    if arguments.steps < 4:
        parser.error(f"--steps is {arguments.steps}: use at least 4, two of which calibrate")
    name = f"cells-{arguments.steps}steps-seed{arguments.seed}" + ("-refined" if arguments.refine else "")
    path = Path("runs") / "cells" / f"{name}.csv"
    dear, cells = hopeless(), quick() if arguments.quick else [*grid(), *hopeless()]
    run_cells(path, cells, arguments.steps, arguments.seed, arguments.refine)
    rows = read_rows(path)
    names = {cell.name for cell in dear}
    normal = complete(rows, [cell for cell in cells if cell.name not in names])
    report = markdown(rows, normal, complete(rows, [c for c in cells if c.name in names]), arguments.steps)
    path.with_suffix(".md").write_text(report, encoding="utf-8")
    print(report)
    print(f"CSV: {path}\nMarkdown: {path.with_suffix('.md')}")


if __name__ == "__main__":
    main()
