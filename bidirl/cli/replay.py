"""``bidirl replay``: what another policy would have decided on a recorded run, real or simulated.

Each decision is replayed by itself, on what the recorded policy saw. A different verdict would have changed what came
after it; that is not followed, so the table counts differences and claims no throughput. ``release`` is not asked.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from bidirl.cli.config import Config
from bidirl.cli.console import show
from bidirl.cli.options import last, policy_option, take
from bidirl.cli.parsing import parse_config
from bidirl.core.errors import ConfigError, PolicyError
from bidirl.core.opportunity import Decision
from bidirl.runtime.outputs.compare import SHORT
from bidirl.runtime.outputs.decision_log import opportunity_of, read_decisions
from bidirl.runtime.outputs.jsonl import read_rows
from bidirl.runtime.outputs.report import Report

USAGE = "bidirl replay RUN --policy CLASS [--policy.argument value …] [--output_dir DIR]"
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Replayed:
    """One recorded decision beside what the other policy says. Seconds; ``None`` where nothing was realised."""

    row: Mapping[str, Any]
    decision: Decision
    realised_seconds: float | None

    @property
    def agrees(self) -> bool:
        """Whether both verdicts are equal."""
        return bool(self.row["admit"]) is self.decision.admit


def main(options: list[str]) -> int:
    """Print agreement and every difference; returns the exit status."""
    if not options or options[0].startswith("--"):
        raise ConfigError(f"the run directory is missing: {USAGE}")
    run = Path(options[0])
    own, rest = take(options[1:], "output_dir")
    replayed = replay(run, rest)
    output = last(own["output_dir"], "output_dir", "")
    directory = Path(output) if output else None
    show(agreement(run.name, replayed), directory)
    show(differences(run.name, replayed, None if directory else _SHOWN), directory)
    return 0


def replay(run: Path, options: Sequence[str]) -> list[Replayed]:
    """Ask the policy of ``options`` (the recorded one without ``--policy``) about every recorded opportunity.

    Raises:
        ConfigError: if the run or its log cannot be read.
        PolicyError: if the policy fails, naming it and the decision.
    """
    rows, warning = read_decisions(run / "decisions.jsonl")
    if warning:
        print(f"bidirl: warning: {warning}", file=sys.stderr)
    taken, rest = take(options, "policy")
    given = policy_option(last(taken["policy"], "policy", ""))
    config = parse_config(Config, run / "config.yaml", [*given, *rest], ("simulation", "task", "ray")).value
    realised = {row["lease_id"]: row["realised_benefit_seconds"] for row in read_rows(run / "leases.jsonl")}
    found = []
    for row in rows:
        opportunity = opportunity_of(row, config.rollout_model, config.trainer_model)
        try:
            decision = config.policy.decide(opportunity)
        except Exception as error:
            name = f"policy {config.policy!r} failed on decision {row['opportunity_id']}"
            raise PolicyError(f"{name}: {error!r} (on {opportunity})") from error
        if not isinstance(decision, Decision):
            raise PolicyError(f"policy {config.policy!r}: decide returned {decision!r}, not a Decision")
        found.append(Replayed(row, decision, realised.get(row["lease_id"])))
    return found


def agreement(name: str, replayed: Sequence[Replayed]) -> Report:
    """Verdicts by direction, and what the recorded leases that the other policy refuses had brought."""
    rows = []
    for direction, short in SHORT.items():
        own = [r for r in replayed if r.row["direction"] == direction.value]
        counts = [
            sum(bool(r.row["admit"]) is recorded and r.decision.admit is other for r in own)
            for recorded, other in ((True, True), (False, False), (True, False), (False, True))
        ]
        refused = [r.realised_seconds for r in own if r.row["admit"] and not r.decision.admit]
        kept = [r.realised_seconds for r in own if r.row["admit"] and r.decision.admit]
        share = f"{(counts[0] + counts[1]) / len(own):.1%}" if own else "–"
        rows.append((short, str(len(own)), *map(str, counts), share, _sum(kept), _sum(refused)))
    columns = (
        "direction", "decisions", "both admit", "both refuse", "only recorded admits", "only replayed admits",
        "agreement", "realised s of leases kept", "realised s of leases refused",
    )  # fmt: skip
    notes = (
        "each decision by itself, on what the recorded policy saw; what a different verdict would have changed later "
        "is not followed, and release is not asked",
        "realised seconds are the estimate of docs/metrics.md; a borrow that was refused has none",
    )
    return Report("replay_agreement", f"{name}: recorded against replayed verdicts", columns, tuple(rows), notes)


def differences(name: str, replayed: Sequence[Replayed], limit: int | None) -> Report:
    """Every decision that was admitted by either side, predictions beside what was realised."""
    relevant = [r for r in replayed if not r.agrees or r.row["admit"]]
    shown = relevant[:limit]
    rows = tuple(
        (
            str(r.row["opportunity_id"]),
            SHORT_BY_VALUE[r.row["direction"]],
            str(r.row["version"]),
            _verdict(bool(r.row["admit"]), str(r.row["reason"])),
            _verdict(r.decision.admit, r.decision.reason),
            _net(r.row["benefit_seconds"], r.row["cost_seconds"]),
            _net(r.decision.benefit_seconds, r.decision.cost_seconds),
            _number(r.realised_seconds),
        )
        for r in shown
    )
    notes = (
        [f"{len(relevant) - len(shown)} more: name an --output_dir to write all"] if len(shown) < len(relevant) else []
    )
    columns = (
        "decision",
        "direction",
        "version",
        "recorded",
        "replayed",
        "recorded net s",
        "replayed net s",
        "realised s",
    )
    title = f"{name}: decisions that either policy admits (predicted net = benefit − cost)"
    return Report("replay_decisions", title, columns, rows, tuple(notes))


SHORT_BY_VALUE = {direction.value: short for direction, short in SHORT.items()}


def _verdict(admit: bool, reason: str) -> str:
    return f"{'admit' if admit else 'refuse'}: {reason}"


def _net(benefit: float | None, cost: float | None) -> str:
    return _number(None if benefit is None or cost is None else benefit - cost)


def _number(value: float | None) -> str:
    return "–" if value is None or not isfinite(value) else f"{value:.2f}"


def _sum(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known):.1f}" if known else "–"
