"""Fig. 1: how both stages scale with devices, and bubbles. ``python -m experiments.fig1``. Simulated."""

from __future__ import annotations

from bidirl.cli.config import Config
from bidirl.cli.parsing import parse_config
from bidirl.cli.plan import batch_work, stage_models
from bidirl.runtime.outputs.report import NOT_RUN, Chart, Interval, Report, interval
from experiments.sweeps import A6000, Cell, Outcome, arguments, publish, run_cells, split

DEVICES = (2, 4, 8, 16, 32)
LAYOUT = 2


def scaling(seeds: int) -> Report:
    """Seconds of one batch by devices, from the stage models on the batches of several seeds."""
    config = parse_config(Config, A6000, (), Config.UNBUILT["sim"]).value
    models = stage_models(config.simulation.resolved_timings(config.envelope.topology()))
    times: dict[str, list[Interval]] = {"rollout": [], "training": []}
    for devices in DEVICES:
        found: dict[str, list[float]] = {"rollout": [], "training": []}
        for seed in range(seeds):
            own = parse_config(Config, A6000, (), Config.UNBUILT["sim"]).value
            own.simulation.workload.seed = seed
            rollout, trainer = batch_work(own)
            found["rollout"].append(models[0].predict(rollout, devices))
            found["training"].append(models[1].predict(trainer, devices // LAYOUT))
        for stage, values in found.items():
            times[stage].append(interval(values))
    rows = []
    for i, devices in enumerate(DEVICES):
        seconds = [values[i].text(".2f") for values in times.values()]
        speedups = [f"{values[0].mean / values[i].mean:.2f}×" for values in times.values()]
        rows.append((str(devices), *seconds, *speedups))
    columns = ("devices", "rollout s", "training s", "rollout speed-up", "training speed-up")
    notes = (
        f"stage models of the simulation on the first batch of {seeds} seeds; the longest response bounds rollout",
    )
    chart = Chart("devices", "seconds of one batch", tuple(map(str, DEVICES)), times, lines=True)
    return Report("fig1_scaling", "Fig. 1: scaling of both stages (simulated)", columns, tuple(rows), notes, chart)


def bubbles(outcomes: list[Outcome], seeds: int) -> Report:
    """Idle shares of both pools by split."""
    rows = []
    series: dict[str, list[Interval | None]] = {"rollpool": [], "trainpool": []}
    for outcome in outcomes:
        shares = [outcome.runs[0].idle_share(pool) if outcome.runs else None for pool in series]
        for pool, share in zip(series, shares, strict=True):
            series[pool].append(share)
        texts = (NOT_RUN if s is None else f"{s.mean:.1%} ± {s.half_width:.1%}" for s in shares)
        rows.append((outcome.cell.value, *texts))
    chart = Chart("rollpool + trainpool", "idle share", tuple(row[0] for row in rows), series)
    notes = (f"simulated; no borrowing; mean ± half of the 95% interval over {seeds} seeds",)
    return Report("fig1_bubbles", "Fig. 1: idle time of fixed pools (simulated)", ("split", "idle roll", "idle train"),
                  tuple(rows), notes, chart)  # fmt: skip


def main() -> None:
    """Run, print, write."""
    given = arguments(__doc__)
    cells = [Cell("split", f"{roll} + {16 - roll}", A6000, (split(roll, 16 - roll),)) for roll in (2, 4, 8, 12)]
    outcomes = run_cells(cells, ("NoBorrow",), given.seeds)
    publish([scaling(given.seeds), bubbles(outcomes, given.seeds)], given.output_dir)


if __name__ == "__main__":
    main()
