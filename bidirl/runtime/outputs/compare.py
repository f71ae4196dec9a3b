"""One table over several runs, from their summaries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction

SHORT = {Direction.ROLLOUTER_ON_TRAINPOOL: "R-on-T", Direction.TRAINER_ON_ROLLPOOL: "T-on-R"}
COLUMNS = (
    "run", "world", "policy", "s", "tokens/s", "of bound", "idle roll", "idle train",
    *(f"{name} admitted/refused" for name in SHORT.values()),
    *(f"{name} in/out/grad s" for name in SHORT.values()),
    "saved s", "reward first → last", "staleness max",
)  # fmt: skip


def read_summary(run: Path) -> dict[str, Any]:
    """The summary of a run directory.

    Raises:
        ConfigError: if there is none.
    """
    try:
        summary: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    except OSError:
        raise ConfigError(f"{run} has no summary.json: it is not a run directory, or the run is not over") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{run}/summary.json cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(summary, dict):
        raise ConfigError(f"{run}/summary.json holds {type(summary).__name__}, not a summary")
    if "staleness_bound" not in summary and (run / "config.yaml").is_file():
        config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")) or {}
        summary["staleness_bound"] = config.get("staleness")
    return summary


def comparison_row(name: str, summary: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of one run, in the order of ``COLUMNS``; a dash where the run did not get that far."""
    if summary.get("error"):
        state = f"failed: {summary['error']}"
        return (name, str(summary.get("world", "–")), state, *("–" for _ in COLUMNS[3:]))
    throughput = summary.get("throughput_tokens_per_second")
    bound = summary.get("work_conserving_bound_tokens_per_second")
    pools = summary.get("device_seconds_by_pool", {})
    leases = summary.get("leases", {})
    saved = [leases[d.value].get("realised_benefit_seconds") for d in SHORT if d.value in leases]
    reward, staleness = summary.get("reward", {}), summary.get("staleness", {})
    return (
        name,
        "simulated" if summary.get("world") == "sim" else str(summary.get("world")),
        str(summary.get("policy")),
        _number(summary.get("staleness_bound"), "g"),
        _number(throughput, ",.1f"),
        _number(throughput / bound if throughput and bound else None, ".2f"),
        _number(_idle_share(pools.get("rollpool")), ".1%"),
        _number(_idle_share(pools.get("trainpool")), ".1%"),
        *(_verdicts(leases.get(direction.value)) for direction in SHORT),
        *(_costs(summary.get("switch_cost_seconds", {}).get(direction.value)) for direction in SHORT),
        _number(sum(x for x in saved if x is not None) if saved else None, ".1f"),
        f"{_number(reward.get('first'), '.3f')} → {_number(reward.get('last'), '.3f')}",
        _number(staleness.get("max"), "g"),
    )


def _checked_row(name: str, summary: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        return comparison_row(name, summary)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigError(f"the summary of {name} does not have the form that a run writes ({what})") from None


def comparison_table(runs: Sequence[tuple[str, Mapping[str, Any]]], title: str | None = None) -> Table:
    """A table with one column per run, from ``(name, summary)``."""
    table = Table(title=title)
    rows = list(zip(COLUMNS, *(_checked_row(name, summary) for name, summary in runs), strict=True))
    table.add_column(COLUMNS[0])
    for name in rows[0][1:]:
        table.add_column(name, justify="right", overflow="fold")
    for cells in rows[1:]:
        table.add_row(*cells)
    return table


def _idle_share(seconds: Mapping[str, float] | None) -> float | None:
    total = sum(seconds.values()) if seconds else 0.0
    return seconds["idle"] / total if seconds and total > 0 else None


def _verdicts(counts: Mapping[str, Any] | None) -> str:
    return f"{counts['admitted']}/{counts['refused']}" if counts else "–"


def _costs(costs: Mapping[str, float | None] | None) -> str:
    return "/".join(_number(costs.get(part), ".2f") for part in ("in", "out", "grad")) if costs else "–"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
