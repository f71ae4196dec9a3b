"""Fig. 2: timelines of the three kinds of idle time, and idle shares. ``python -m experiments.fig2``. Simulated."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from bidirl.cli.ablate import run_cell
from bidirl.cli.config import Config
from bidirl.cli.parsing import parse_config
from bidirl.runtime.outputs import FileRecorder, plot_timeline
from bidirl.runtime.outputs.report import NOT_RUN, Report
from experiments.sweeps import A6000, Cell, arguments, publish, run_cells, split

CELLS = (
    Cell("rollout_slower", "rollout is slower: trainers wait", A6000, (split(2, 14),)),
    Cell("training_slower", "training is slower: rollouters stop at the bound", A6000, (split(12, 4),)),
    Cell("staleness_bound", "on-policy: both sides idle in turn", A6000, (split(4, 12), "--staleness=0")),
)
_DRAWN_STEPS = 6


def timeline(cell: Cell, target: Path) -> Path:
    """The run of the first seed, drawn."""
    options = (*cell.options, f"--num_steps={_DRAWN_STEPS}")
    topology = parse_config(Config, cell.file, options, Config.UNBUILT["sim"]).value.envelope.topology()
    with TemporaryDirectory() as directory:
        run = Path(directory) / cell.sweep
        run.mkdir()
        run_cell(cell.file, options, "NoBorrow", 0, FileRecorder(run, topology, "sim"))
        return plot_timeline(run, target)


def main() -> None:
    """Run, print, write."""
    given = arguments(__doc__)
    rows = []
    for outcome in run_cells(CELLS, ("NoBorrow",), given.seeds):
        shares = [outcome.runs[0].idle_share(p) if outcome.runs else None for p in ("rollpool", "trainpool")]
        texts = (NOT_RUN if s is None else f"{s.mean:.1%} ± {s.half_width:.1%}" for s in shares)
        rows.append((outcome.cell.value, *texts))
    notes = (f"simulated; no borrowing; mean ± half of the 95% interval over {given.seeds} seeds",)
    columns = ("case", "idle roll", "idle train")
    publish(
        [Report("fig2", "Fig. 2: three kinds of idle time (simulated)", columns, tuple(rows), notes)], given.output_dir
    )
    for cell in CELLS:
        print(timeline(cell, given.output_dir / f"fig2_{cell.sweep}.png"))


if __name__ == "__main__":
    main()
