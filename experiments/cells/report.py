"""Tables from the rows: ratios to no borrowing, worst cells, regret. Everything here is simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, quantiles

from experiments.cells.grid import Cell
from experiments.cells.line_up import BASELINE, ENTRIES, OPPORTUNISTIC, ORACLE, OURS, PAPER

Rows = Mapping[tuple[str, str], Mapping[str, str]]
TOLERANCE = 1e-3
"""Relative difference below which two throughputs count as equal."""


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """One policy over all cells. Ratios are to no borrowing in the same cell; regret is against the reference."""

    policy: str
    mean_ratio: float
    worst_ratio: float
    worst_cell: str
    mean_regret: float
    p90_regret: float
    cells_below: int


def tokens(rows: Rows, cell: str, policy: str) -> float:
    """Tokens per second."""
    return float(rows[cell, policy]["throughput_tokens_per_second"])


def complete(rows: Rows, cells: Sequence[Cell]) -> list[str]:
    """Names of the cells in which everything has run."""
    names = [entry.name for entry in ENTRIES] + [ORACLE]
    return [cell.name for cell in cells if all((cell.name, name) in rows for name in names)]


def policy_lines(rows: Rows, cells: Sequence[str]) -> list[PolicyLine]:
    """One line per policy; the reference is the last."""
    lines = []
    for name in [entry.name for entry in ENTRIES] + [ORACLE]:
        ratios = {cell: tokens(rows, cell, name) / tokens(rows, cell, BASELINE) for cell in cells}
        best = {cell: max(tokens(rows, cell, ORACLE), tokens(rows, cell, name)) for cell in cells}
        regrets = [1.0 - tokens(rows, cell, name) / best[cell] for cell in cells]
        worst = min(ratios, key=lambda cell: ratios[cell])
        p90 = quantiles(regrets, n=10, method="inclusive")[8] if len(regrets) > 1 else regrets[0]
        below = sum(ratio < 0.99 for ratio in ratios.values())
        lines.append(PolicyLine(name, mean(ratios.values()), ratios[worst], worst, mean(regrets), p90, below))
    return lines


def losses(rows: Rows, cells: Sequence[str], policy: str) -> list[tuple[str, float]]:
    """Cells in which ``policy`` is slower than no borrowing, with the ratio; the worst first."""
    ratios = [(cell, tokens(rows, cell, policy) / tokens(rows, cell, BASELINE)) for cell in cells]
    return sorted([pair for pair in ratios if pair[1] < 1.0 - TOLERANCE], key=lambda pair: pair[1])


def markdown(rows: Rows, cells: Sequence[str], hopeless: Sequence[str], num_steps: int) -> str:
    """The report."""
    text = [
        "# Policies over simulated cells",
        "",
        f"All figures are simulated: {len(cells)} cells, {num_steps} steps each, one seed. `ratio` is throughput over",
        "that of no borrowing in the same cell. `regret` is 1 − throughput over that of the clairvoyant reference: the",
        "best schedule of a searched family, chosen after the fact on the very lengths and costs. It is attainable, so",
        "a better one may exist.",
        "",
        "| policy | mean ratio | worst ratio | cells below 0.99 | mean regret | p90 regret | worst cell |",
        "|---|---|---|---|---|---|---|",
    ]
    for x in policy_lines(rows, cells):
        text.append(
            f"| {x.policy} | {x.mean_ratio:.3f} | {x.worst_ratio:.3f} | {x.cells_below} "
            f"| {x.mean_regret:.1%} | {x.p90_regret:.1%} | {x.worst_cell} |"
        )
    bounds = [
        tokens(rows, cell, ORACLE) / float(rows[cell, ORACLE]["work_conserving_bound_tokens_per_second"])
        for cell in cells
    ]
    text += ["", f"The reference reaches {mean(bounds):.1%} of the work-conserving bound of its own runs, on average."]
    for policy in (PAPER, OURS):
        lost = losses(rows, cells, policy)
        text += ["", f"## Where {policy} is slower than no borrowing: {len(lost)} cells", ""]
        text += [f"* {cell}: {ratio:.3f}" for cell, ratio in lost]
    text += ["", f"## Borrowing cannot pay: {len(hopeless)} cells with 50 times the switch costs", ""]
    if hopeless:
        text += ["| policy | leases admitted | mean ratio | worst ratio |", "|---|---|---|---|"]
    for name in (OPPORTUNISTIC, PAPER, OURS) if hopeless else ():
        found = [rows[cell, name] for cell in hopeless]
        leases = sum(int(r["rollouter_on_trainpool"]) + int(r["trainer_on_rollpool"]) for r in found)
        ratios = [tokens(rows, cell, name) / tokens(rows, cell, BASELINE) for cell in hopeless]
        text.append(f"| {name} | {leases} | {mean(ratios):.3f} | {min(ratios):.3f} |")
    return "\n".join(text) + "\n"
