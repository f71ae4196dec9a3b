"""Fig. 7: every split against the planner's choice, and the error of the stage models. ``python -m experiments.fig7``.

Simulated. Stage-model errors are held out: each unit of work is predicted before the model learns from it.
"""

from __future__ import annotations

from bidirl.cli.config import Config
from bidirl.cli.parsing import parse_config
from bidirl.cli.plan import PlanOptions, plan_job
from bidirl.runtime.outputs.report import NOT_RUN, Chart, Report, interval
from experiments.sweeps import A6000, Cell, Claim, Outcome, arguments, claims_report, publish, run_cells, split

MODELS = {"qwen3-vl-2b": (1, "1.40×"), "qwen3-vl-4b": (2, "2.09×")}
ROLLPOOLS = (2, 4, 6, 8, 10, 12, 14)
PAPER_ERRORS = {"rollout": "3.12% / 5.77%", "train": "2.92% / 4.68%"}


def planned_rollpool(model: str) -> int:
    """g_r that Algorithm 1 chooses."""
    options = (f"--simulation.model={model}", split(8, 8, MODELS[model][0]))
    config = parse_config(Config, A6000, options, Config.UNBUILT["sim"]).value
    return plan_job(config, PlanOptions()).chosen.rollpool_devices


def partition(model: str, chosen: int, outcomes: list[Outcome], seeds: int) -> tuple[Report, Claim, float]:
    """Throughput by split, without borrowing; whether the planner's is the best; best over worst."""
    points = [o.runs[0].throughput() if o.runs else None for o in outcomes]
    known = {int(o.cell.value.split()[0]): p for o, p in zip(outcomes, points, strict=True) if p is not None}
    best = max(known, key=lambda roll: known[roll].mean)
    rows = tuple(
        (o.cell.value, p.text(",.0f") if p else f"{NOT_RUN}: {o.failure}",
         "planner" if o.cell.value.startswith(f"{chosen} ") else "")
        for o, p in zip(outcomes, points, strict=True)
    )  # fmt: skip
    chart = Chart("rollpool + trainpool", "tokens/s", tuple(row[0] for row in rows), {"NoBorrow": points}, lines=True)
    notes = (f"simulated; no borrowing; mean ± half of the 95% interval over {seeds} seeds",)
    report = Report(f"fig7_{model.replace('-', '_')}", f"Fig. 7, {model}: partition sweep (simulated)",
                    ("split", "tokens/s", "chosen by"), rows, notes, chart)  # fmt: skip
    spread = max(p.mean for p in known.values()) / min(p.mean for p in known.values())
    lost = f"{1.0 - known[chosen].mean / known[best].mean:.1%} lost" if chosen in known else NOT_RUN
    text = f"planner {chosen}, best {best} of those swept ({lost})"
    return (
        report,
        Claim(f"{model}: the planner picks the measured best", "yes", text, chosen == best),
        spread,
    )


def errors(outcomes: list[Outcome], seeds: int) -> Report:
    """Median and p90 of |predicted − measured| / measured."""
    rows = []
    for stage, paper in PAPER_ERRORS.items():
        found = [s["stage_model_error"][stage] for o in outcomes for r in o.runs for s in r.summaries]
        cells = [interval([e[q] for e in found if e.get(q) is not None]) for q in ("median", "p90")]
        rows.append((stage, *(f"{c.mean:.2%} ± {c.half_width:.2%}" for c in cells), paper))
    notes = (
        f"simulated, noise σ 3% on rollout and training; over all splits and {seeds} seeds; predicted before learning",
        "paper: Fig. 7, on hardware; a simulated error says how well the fit follows its own model family, no more",
    )
    return Report("fig7_errors", "Fig. 7: stage-model error, held out (simulated)",
                  ("stage", "median", "p90", "paper median / p90"), tuple(rows), notes)  # fmt: skip


def main() -> None:
    """Run, print, write."""
    given = arguments(__doc__)
    noise = "--simulation.timings={rollout_noise: 0.03, trainer_noise: 0.03, switch_noise: 0.1}"
    reports, claims, everything, spreads = [], [], [], []
    for model, (layout, _) in MODELS.items():
        chosen = planned_rollpool(model)
        cells = [
            Cell("split", f"{roll} + {16 - roll}", A6000,
                 (f"--simulation.model={model}", split(roll, 16 - roll, layout), noise))
            for roll in sorted({*ROLLPOOLS, chosen})
        ]  # fmt: skip
        outcomes = run_cells(cells, ("NoBorrow",), given.seeds)
        report, claim, spread = partition(model, chosen, outcomes, given.seeds)
        reports.append(report)
        claims.append(claim)
        spreads.append(spread)
        everything += outcomes
    paper, ours = " < ".join(p for _, p in MODELS.values()), " / ".join(f"{x:.2f}×" for x in spreads)
    claims.append(Claim("best over worst split is larger for 4B than for 2B", paper, ours, spreads[0] < spreads[1]))
    reports += [errors(everything, given.seeds), claims_report("fig7", "Fig. 7", claims, given.seeds)]
    publish(reports, given.output_dir)


if __name__ == "__main__":
    main()
