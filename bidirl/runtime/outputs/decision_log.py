"""The decision log: written with each list of chunks once, read back as rows and as what the policy saw."""

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
from bidirl.runtime.outputs.jsonl import RowWriter


class DecisionWriter(RowWriter):
    """A row whose chunks end like those of an earlier row names that row instead of listing them.

    ``trainer_work`` is then ``{"chunks_of": opportunity_id, "skip": n, …}``: the chunks of that row without the first
    n. A queue shrinks from its head, so a batch is listed about once, not once per decision.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._listed: tuple[int, tuple[Any, ...]] = (-1, ())

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one decision row."""
        work = row.get("trainer_work", {})
        chunks = work.get("chunks", ())
        listed_by, listed = self._listed
        skip = len(listed) - len(chunks)
        if chunks and skip >= 0 and listed[skip:] == chunks:
            known = {"chunks_of": listed_by, "skip": skip}
            row = {**row, "trainer_work": {**known, **{k: v for k, v in work.items() if k != "chunks"}}}
        elif chunks:
            self._listed = (row["opportunity_id"], chunks)
        super().write(row)


def _list_chunks(row: dict[str, Any], listed: dict[int, list[Any]]) -> None:
    """Put the chunks themselves where the row names the row that lists them.

    Raises:
        ValueError: if no such row came before.
    """
    work = row.get("trainer_work")
    if not isinstance(work, dict):
        return
    if "chunks_of" in work:
        source, skip = work.pop("chunks_of"), work.pop("skip", None)
        if type(source) is not int or source not in listed or type(skip) is not int or skip < 0:
            raise ValueError(f"has the chunks of decision {source!r} without the first {skip!r}, which is none before")
        work["chunks"] = listed[source][skip:]
    elif work.get("chunks"):
        listed.clear()
        listed[row["opportunity_id"]] = work["chunks"]


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
    listed: dict[int, list[Any]] = {}
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
        try:
            _list_chunks(row, listed)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}:{number} {error}") from None
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
