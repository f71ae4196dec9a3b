"""Table 5: switch costs of real runs beside the paper's. ``python -m experiments.table5 RUN…`` with run directories."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.models.roofline_switch import TABLE5
from bidirl.runtime.outputs import read_summary
from bidirl.runtime.outputs.compare import SHORT
from bidirl.runtime.outputs.report import NOT_RUN, Report, interval
from experiments.sweeps import publish

PARTS = ("in", "out", "grad")


def real_summaries(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Summaries of real runs that ended well.

    Raises:
        ConfigError: for a simulated run, whose switch costs are assumptions.
    """
    found = []
    for run in runs:
        summary = read_summary(run)
        if summary["world"] == "sim":
            raise ConfigError(f"{run} is simulated: Table 5 shows measured switch costs only")
        found.append(summary)
    return found


def table(summaries: Sequence[dict[str, Any]]) -> Report:
    """One row per direction and part."""
    rows = []
    for direction, short in SHORT.items():
        for part in PARTS:
            if part == "grad" and direction is Direction.ROLLOUTER_ON_TRAINPOOL:
                continue
            values = [s["switch_cost_seconds"][direction.value][part] for s in summaries]
            known = [value for value in values if value is not None]
            ours = f"{interval(known).text('.3f')} ({len(known)} runs)" if known else NOT_RUN
            paper = " / ".join(f"{getattr(cost, f'{part}_seconds'):.2f}" for cost in TABLE5[direction])
            rows.append((f"{short} C_{part}", ours, paper))
    notes = (
        "ours: measured on the real runtime, mean per run, then mean ± half of the 95% interval over runs",
        "paper: arXiv 2607.09207, Table 5 (GPUs, testbed not stated): another machine and model",
    )
    return Report(
        "table5", "Table 5: switch costs, seconds", ("cost", "ours (measured)", "paper 2B / 4B"), tuple(rows), notes
    )


def main() -> None:
    """Read, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, help="run directories of bidirl train")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/experiments"), help="runs/experiments")
    given = parser.parse_args()
    try:
        publish([table(real_summaries(given.runs))], given.output_dir)
    except ConfigError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
