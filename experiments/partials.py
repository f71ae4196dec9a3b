"""How often leases return partial prefixes, and what resuming costs. ``python -m experiments.partials``. Simulated."""

from __future__ import annotations

from bidirl.cli.config import Config
from bidirl.cli.parsing import parse_config
from bidirl.core.topology import Direction
from bidirl.runtime.outputs.report import Report, interval
from experiments.sweeps import A6000, Cell, Outcome, arguments, lengths, publish, run_cells, split

POLICIES = ("Opportunistic", "ModelGuided", "PricedModelGuided")
ROLL = Direction.ROLLOUTER_ON_TRAINPOOL.value
CELLS = (
    Cell("split", "8 + 8", A6000),
    Cell("split", "2 + 14", A6000, (split(2, 14),)),
    Cell("split", "2 + 14, σ 1, cap 4K", A6000, (split(2, 14), *lengths(sigma=1.0, max_response_tokens=4096))),
)


def rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """One row per policy."""
    config = parse_config(Config, outcome.cell.file, outcome.cell.options, Config.UNBUILT["sim"]).value
    workload = config.simulation.workload
    longest = (workload.prompt_tokens(0) + workload.max_response_tokens) * config.group_size
    bound = longest * config.simulation.resolved_timings(config.envelope.topology()).rollout.prefill_seconds
    found = []
    for runs in outcome.runs:
        leases = interval([float(s["leases"][ROLL]["admitted"]) for s in runs.summaries])
        partial = interval([float(s["leases"][ROLL]["partial_groups"]) for s in runs.summaries])
        share = interval([s["leases"][ROLL]["partial_groups"] / s["groups"]["consumed"] for s in runs.summaries])
        wall = interval([float(s["wall_seconds"]) for s in runs.summaries])
        cost = f"≤ {bound * partial.mean / wall.mean / len(config.envelope.topology().rollpool):.2%}"
        per_lease = f"{partial.mean / leases.mean:.2f}" if leases.mean else "–"
        found.append((outcome.cell.value, runs.name, leases.text(".1f"), partial.text(".1f"), per_lease,
                      f"{share.mean:.1%}", f"≤ {bound:.2f}", cost))  # fmt: skip
    return found


def main() -> None:
    """Run, print, write."""
    given = arguments(__doc__)
    outcomes = run_cells(CELLS, POLICIES, given.seeds)
    columns = ("cell", "policy", "R-on-T leases", "groups returned partial", "per lease", "of consumed groups",
               "re-prefill s per group", "of rollpool time")  # fmt: skip
    notes = (
        f"simulated; mean ± half of the 95% interval over {given.seeds} seeds",
        "re-prefill is an upper bound: all samples of the group at the response cap, on one replica",
        "the paper does not say how often this happens",
    )
    cells = tuple(row for outcome in outcomes for row in rows(outcome))
    publish(
        [Report("partials", "Partial prefixes returned by leases (simulated)", columns, cells, notes)], given.output_dir
    )


if __name__ == "__main__":
    main()
