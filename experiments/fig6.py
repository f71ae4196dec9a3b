"""Fig. 6, the ablation, for three tail weights: ``python -m experiments.fig6``. Simulated."""

from __future__ import annotations

from dataclasses import replace

from bidirl.cli.ablate import ablation_report
from bidirl.runtime.outputs.report import Report
from experiments.sweeps import ABLATION, Cell, Claim, Outcome, arguments, claims_report, lengths, publish, run_cells

POLICIES = ("NoBorrow", "RolloutOnly", "TrainOnly", "Opportunistic", "ModelGuided", "PricedModelGuided")
SIGMAS = (0.5, 0.75, 1.0)
_FULL = 4
PAPER_RANGES = {  # variant that ModelGuided is compared with → the paper's Fig. 6 range
    0: ("no borrowing", "1.12–1.71×"),
    1: ("without T-on-R (RolloutOnly)", "1.02–1.68×"),
    2: ("without R-on-T (TrainOnly)", "1.00–1.24×"),
    3: ("opportunistic", "1.02–1.31×"),
}


def claims(outcomes: list[Outcome]) -> list[Claim]:
    """Full scheduler at least as fast as every variant, per tail weight."""
    found = []
    for outcome in outcomes:
        for variant, (text, paper) in PAPER_RANGES.items():
            gain = outcome.gain(_FULL, variant)
            ours = outcome.failure if gain is None else gain.text(".3f")
            tie = paper.startswith("1.00")
            holds = None if gain is None else gain.mean >= 1.0 if tie else gain.mean > 1.0
            verb = "is not slower than" if tie else "is faster than"
            found.append(Claim(f"σ {outcome.cell.value}: ModelGuided {verb} {text}", paper, ours, holds))
    return found


def main() -> None:
    """Run, print, write."""
    given = arguments(__doc__)
    cells = [Cell("σ", f"{sigma:g}", ABLATION, tuple(lengths(sigma=sigma))) for sigma in SIGMAS]
    outcomes = run_cells(cells, POLICIES, given.seeds)
    reports: list[Report] = []
    for outcome in outcomes:
        note = f"qwen3-vl-4b on a6000, 4 + 12 devices, 60 prompts, s = 1, σ = {outcome.cell.value}"
        title = f"Fig. 6, σ = {outcome.cell.value}: ablation (simulated)"
        table = ablation_report("fig6", outcome.runs, note, title)
        reports.append(replace(table, name=f"fig6_sigma_{outcome.cell.value.replace('.', '_')}"))
    reports.append(claims_report("fig6", "Fig. 6", claims(outcomes), given.seeds))
    publish(reports, given.output_dir)


if __name__ == "__main__":
    main()
