"""Replay of recorded lengths: a real run's ledger as the workload of a simulated one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bidirl.core.errors import ConfigError
from bidirl.runtime.sim.workload import Workload


def read_lengths(path: str) -> list[Mapping[str, Any]]:
    """Rows with ``response_tokens``, one per group, in the order of their ids.

    Raises:
        ConfigError: naming the line that is no such row, or if there is none.
    """
    rows: dict[int, Mapping[str, Any]] = {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                row = _row(line, f"{path}:{number}") if line.strip() else None
                if row is not None:
                    rows[row["group_id"]] = row
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"lengths file {path} cannot be read: {error}") from None
    if not rows:
        raise ConfigError(f"lengths file {path} has no row with response_tokens")
    return [rows[group_id] for group_id in sorted(rows)]


def _row(line: str, where: str) -> Mapping[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is not a mapping")
    if "response_tokens" not in row:
        return None
    lengths = row["response_tokens"]
    whole = isinstance(row.get("group_id"), int) and isinstance(row.get("prompt_tokens"), int)
    if not whole or not isinstance(lengths, list) or not all(isinstance(x, int) and x > 0 for x in lengths):
        raise ConfigError(
            f"{where}: group_id and prompt_tokens must be integers, response_tokens a list of positive ones"
        )
    return row


class ReplayWorkload(Workload):
    """Lengths (and rewards, where recorded) of real groups by id; ids that the record lacks take its rows in turn.

    Args:
        path: JSONL, one group a line: ``{"group_id": 3, "prompt_tokens": 81, "response_tokens": [120, 75], "rewards":
            [1.0, 0.0]}``; ``rewards`` is optional, rows without ``response_tokens`` are skipped, and rows are ordered
            by ``group_id`` (a later row of the same group replaces the earlier one).
    """

    def __init__(
        self,
        *,
        path: str,
        group_size: int,
        max_response_tokens: int,
        success_probability: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__(
            group_size=group_size,
            max_response_tokens=max_response_tokens,
            success_probability=success_probability,
            seed=seed,
        )
        self._rows = read_lengths(path)
        self._by_id = {row["group_id"]: row for row in self._rows}
        for row in self._rows:
            if len(row["response_tokens"]) < group_size:
                raise ConfigError(
                    f"{path}: group {row['group_id']} has {len(row['response_tokens'])} responses, "
                    f"group_size is {group_size}: lower it or replay another file"
                )

    def _row(self, group_id: int) -> Mapping[str, Any]:
        row = self._by_id.get(group_id)
        return self._rows[group_id % len(self._rows)] if row is None else row

    def prompt_tokens(self, group_id: int) -> int:
        """Length of a prompt."""
        return int(self._row(group_id)["prompt_tokens"])

    def _draw_responses(self, group_id: int) -> Sequence[int]:
        lengths: Sequence[int] = self._row(group_id)["response_tokens"][: self.group_size]
        return lengths

    def rewards(self, group_id: int) -> tuple[float, ...]:
        """Recorded rewards, simulated ones where none are recorded."""
        recorded = self._row(group_id).get("rewards")
        if recorded is None or len(recorded) < self.group_size or None in recorded[: self.group_size]:
            return super().rewards(group_id)
        return tuple(float(reward) for reward in recorded[: self.group_size])
