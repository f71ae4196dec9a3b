"""Reading a decision log back: rows, and the opportunities that the policy saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.core.interfaces import StageModel
from bidirl.core.opportunity import LeaseHistory, Opportunity
from bidirl.core.scheduler import DECISION_SCHEMA
from bidirl.core.topology import Direction
from bidirl.core.work import RolloutUsage, RolloutWork, SwitchCost, TrainerWork


def read_decisions(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """All complete rows, and a warning if the log is cut off in the middle of a line.

    Raises:
        ConfigError: if there is no log, it is of another schema version, or a line before the last is no row.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise ConfigError(f"decision log {path} cannot be read: {error.strerror}") from None
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                return rows, f"{path}:{number} is cut off in the middle of the line: read up to there"
            raise ConfigError(f"{path}:{number} is not JSON: {error}") from None
        schema = row.get("schema") if isinstance(row, dict) else None
        if schema != DECISION_SCHEMA:
            has = "has no schema version" if schema is None else f"is of schema version {schema}"
            raise ConfigError(
                f"{path}:{number} {has}, this bidirl reads {DECISION_SCHEMA}: replay it with the bidirl that wrote it "
                "(provenance.json names its commit), or run the job again"
            )
        rows.append(row)
    return rows, None


def opportunity_of(
    row: Mapping[str, Any],
    rollout_model: StageModel[RolloutWork, RolloutUsage],
    trainer_model: StageModel[TrainerWork, TrainerWork],
) -> Opportunity:
    """What the policy saw. The models are loaded with the row's parameters and are part of the result.

    Raises:
        ConfigError: naming the decision and the key that it lacks.
    """
    try:
        rollout_model.load_parameters(row["rollout_model"])
        trainer_model.load_parameters(row["trainer_model"])
        work, history = row["trainer_work"], row["history"]
        return Opportunity(
            opportunity_id=row["opportunity_id"],
            direction=Direction(row["direction"]),
            cause=row["cause"],
            now_seconds=row["seconds"],
            version=row["version"],
            staleness_bound=row["staleness_bound"],
            primary_replicas=row["primary_replicas"],
            auxiliary_replicas=row["auxiliary_replicas"],
            missing_groups=row["missing_groups"],
            rollout_work=RolloutWork(**row["rollout_work"]),
            trainer_work=TrainerWork(tuple((SubStage(s), n) for s, n in work["chunks"]), work["comm_bytes"]),
            chunk_seconds_running=row["chunk_seconds_running"],
            lender_wait_seconds=float(row["lender_wait_seconds"]),
            lender_replicas=row["lender_replicas"],
            borrowed_replicas=row["borrowed_replicas"],
            switch_cost=SwitchCost(**row["switch_cost"]),
            rollout_model=rollout_model,
            trainer_model=trainer_model,
            calibrating=row["calibrating"],
            history=LeaseHistory(
                tuple(history["recent_switch_seconds"]),
                float("nan") if history["sample_seconds"] is None else history["sample_seconds"],
                history["paid"],
                history["lost"],
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"decision {row.get('opportunity_id')} of the log cannot be read: {error!r}") from None
