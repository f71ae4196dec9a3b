"""Fig. 5, end-to-end sweeps: response cap, staleness, devices, model and data, H100. ``python -m experiments.fig5``.

Simulated. The paper's gains are over the strongest of three other systems, which are not run here: ours are over the
same pools without borrowing.
"""

from __future__ import annotations

from bidirl.runtime.outputs.report import NOT_RUN, Chart, Report
from experiments.sweeps import (
    A6000,
    H100,
    Cell,
    Claim,
    Outcome,
    arguments,
    cell_text,
    claims_report,
    lengths,
    means,
    ordered,
    publish,
    run_cells,
    split,
)  # fmt: skip

POLICIES = ("NoBorrow", "ModelGuided", "PricedModelGuided")
# Trainer layouts are the smallest that fit (bidirl plan); GSM8K lengths: CONSTANTS §2.5 (median 165, σ 0.55, cap 1K).
GSM8K = (
    "--groups_per_batch=256",
    *lengths(groups_per_batch=256, max_response_tokens=1024, median_response_tokens=165, sigma=0.55),
)
CELLS = (
    Cell("cap", "1K", A6000, tuple(lengths(max_response_tokens=1024)), "1.55×"),
    Cell("cap", "2K", A6000, (), "1.45×"),
    Cell("cap", "4K", A6000, tuple(lengths(max_response_tokens=4096)), "1.27×"),
    Cell("staleness", "0", A6000, ("--staleness=0",), "about veRL colocated"),
    Cell("staleness", "0.5", A6000, ("--staleness=0.5",), "1.45–1.68×"),
    Cell("staleness", "1", A6000, (), "1.45–1.68×"),
    Cell("staleness", "2", A6000, ("--staleness=2",), "1.45–1.68×"),
    Cell("staleness", "4", A6000, ("--staleness=4",), "1.45–1.68×"),
    Cell("devices", "8", A6000, (split(4, 4),), "1.27–1.68×"),
    Cell("devices", "16", A6000, (), "1.27–1.68×"),
    Cell("devices", "32", A6000, (split(16, 16),), "1.94×"),
    Cell("model", "qwen3-vl-2b", A6000, ("--simulation.model=qwen3-vl-2b", split(8, 8, 1)), "1.27–1.68×"),
    Cell("model", "qwen3-8b GSM8K", A6000, ("--simulation.model=qwen3-8b", split(8, 8, 4), *GSM8K), "1.27–1.68×"),
    Cell("h100", "16 devices", H100, (), "1.23–1.47×"),
    Cell("h100", "32 devices", H100, (split(16, 16),), "1.05–1.53×"),
    Cell("h100", "s = 4", H100, ("--staleness=4",), "1.26–1.39×"),
)  # fmt: skip


def table(outcomes: list[Outcome], seeds: int) -> Report:
    """One row per cell."""
    rows = []
    for outcome in outcomes:
        base = outcome.runs[0].throughput() if outcome.runs else None
        gains = (cell_text(outcome.gain(i), outcome.failure) for i in (1, 2))
        throughput = base.text(",.0f") if base is not None else NOT_RUN
        rows.append((f"{outcome.cell.sweep} {outcome.cell.value}", throughput, *gains, outcome.cell.paper))
    chart = Chart("cell", "throughput over NoBorrow", tuple(row[0] for row in rows),
                  {name: [o.gain(i) for o in outcomes] for i, name in enumerate(POLICIES) if i})  # fmt: skip
    columns = ("cell", "NoBorrow tokens/s", "ModelGuided over it", "PricedModelGuided over it", "paper, over others")
    notes = (
        f"simulated; mean ± half of the 95% interval over {seeds} seeds, ratios paired by seed",
        "paper: PAPER.md §3 (Fig. 5), over the strongest of veRL, AReaL and ROLL, which are not run here",
        "switch costs of 8B and of H100 are extrapolated from the paper's Table 5",
    )
    return Report("fig5", "Fig. 5: end-to-end sweeps (simulated)", columns, tuple(rows), notes, chart)


def claims(outcomes: list[Outcome]) -> list[Claim]:
    """Orderings of PAPER.md §3."""
    by = {(o.cell.sweep, o.cell.value): o for o in outcomes}
    caps = [by["cap", value].gain(1) for value in ("1K", "2K", "4K")]
    sizes = [by["devices", value].gain(1) for value in ("32", "16")]
    beds = [by["staleness", "4"].gain(1), by["h100", "s = 4"].gain(1)]
    every = [o.gain(1) for o in outcomes if o.cell.value != "0"]
    known = [gain.mean for gain in every if gain is not None]
    return [
        Claim("the gain falls as the cap grows (1K > 2K > 4K)", "1.55 / 1.45 / 1.27", means(caps), ordered(caps)),
        Claim("the gain at 32 devices exceeds that at 16", "1.94 / 1.45", means(sizes), ordered(sizes)),
        Claim("A6000 gains more than H100 (s = 4)", "1.45–1.68 / 1.26–1.39", means(beds), ordered(beds)),
        Claim("borrowing is faster in every cell", "1.05–1.94", f"{min(known):.3f}–{max(known):.3f}", min(known) > 1.0),
    ]


def main() -> None:
    """Run, print, write."""
    given = arguments(__doc__)
    outcomes = run_cells(CELLS, POLICIES, given.seeds)
    publish(
        [table(outcomes, given.seeds), claims_report("fig5", "Fig. 5", claims(outcomes), given.seeds)], given.output_dir
    )


if __name__ == "__main__":
    main()
