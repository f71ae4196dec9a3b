"""``make demo``: real GRPO training on two devices, with and without borrowing, beside its simulation.

Four real runs (s = 0 and s = 1, no borrowing and model-guided borrowing in both directions), each followed by the same
job in the simulated cluster, calibrated from that run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bidirl.cli.console import console as terminal
from bidirl.core.errors import BidirlError
from bidirl.runtime.outputs import comparison_table, plot_timeline
from experiments.job_runs import ensure_model, new_directory, simulate_like, train

CONFIG = Path("experiments/demo.yaml")
MODEL = Path("models/cache/tiny")
ROWS = tuple((policy, staleness) for staleness in (0, 1) for policy in ("NoBorrow", "ModelGuided"))


def main() -> int:
    """Run everything; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make demo ARGS=…", description=__doc__)
    parser.add_argument("--steps", type=int, default=None, help="optimizer steps of each run (default: the config's)")
    arguments = parser.parse_args()
    began = time.monotonic()
    console = terminal()
    try:
        ensure_model(MODEL, ["tiny", str(MODEL)])
        directory = new_directory("demo")
        real, simulated = _run_rows(directory, console, {"num_steps": arguments.steps} if arguments.steps else {})
    except BidirlError as error:
        console.print(f"demo: {error}", style="red", highlight=False)
        return 1
    console.print(comparison_table(list(real.items()), title="Measured"))
    console.print(fidelity_table(real, simulated))
    peak = max(row["peak_memory_gib"] for row in real.values())
    console.print(f"peak memory {peak:.1f} GiB, {(time.monotonic() - began) / 60:.1f} minutes; runs in {directory}")
    console.print(f"traces (open in ui.perfetto.dev): {directory}/*/trace.json; timelines: {directory}/*/timeline.png")
    (directory / "demo.json").write_text(json.dumps({"real": real, "simulated": simulated}), encoding="utf-8")
    return 0


def _run_rows(
    directory: Path, console: Console, options: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    real, simulated = {}, {}
    for policy, staleness in ROWS:
        name = f"{policy}-s{staleness}"
        row = {"policy": policy, "staleness": staleness, **options}
        console.rule(f"{name}: real, then simulated")
        real[name] = train(CONFIG, directory / name, row)
        plot_timeline(directory / name, directory / name / "timeline.png")
        simulated[name] = simulate_like(directory / name, CONFIG, directory / f"{name}-simulated", row)
    return real, simulated


def fidelity_table(real: Mapping[str, Mapping[str, Any]], simulated: Mapping[str, Mapping[str, Any]]) -> Table:
    """Measured beside simulated, per run."""
    table = Table(title="Measured beside simulated (calibrated from the measured run, same lengths)")
    table.add_column("run")
    for column in ("tokens/s", "simulated", "error", "idle", "simulated", "leases", "simulated"):
        table.add_column(column, justify="right")
    for name, row in real.items():
        other = simulated[name]
        measured, predicted = (x["throughput_tokens_per_second"] for x in (row, other))
        cells = [f"{measured:,.0f}", f"{predicted:,.0f}", f"{predicted / measured - 1:+.1%}"]
        cells += [f"{_idle(x):.1%}" for x in (row, other)] + [_leases(x) for x in (row, other)]
        table.add_row(name, *cells)
    return table


def _idle(summary: Mapping[str, Any]) -> float:
    seconds = summary["device_seconds"]
    return float(seconds["idle"] / sum(seconds.values()))


def _leases(summary: Mapping[str, Any]) -> str:
    return " + ".join(str(direction["admitted"]) for direction in summary["leases"].values())


if __name__ == "__main__":
    sys.exit(main())
