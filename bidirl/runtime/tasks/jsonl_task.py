"""A file of prompts and answers with a scoring function of your own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bidirl.core.errors import ConfigError
from bidirl.runtime.tasks.base import Example, PromptFormat, Task
from bidirl.runtime.tasks.jsonl_file import BadLine, read_jsonl
from bidirl.runtime.tasks.names import import_function

_log = logging.getLogger(__name__)


class JsonlTask(Task):
    """One JSON object per line; every epoch passes all of them in an order of its own.

    Args:
        path: the file.
        scorer: import path of ``score(response: str, record: dict) -> float``.
        prompt_key: key of the question, a string; the whole record goes to the scorer.
        bad_lines: what to do with a line that is malformed, empty, huge, not UTF-8 or without a question: ``refuse``
            the file, or ``skip`` the line with a warning (kept in ``skipped``).
        max_line_bytes: a longer line is bad.
        shuffle: pass the examples in a random order; otherwise in file order.
        seed: of the order.
        prompt_format: see :class:`~bidirl.runtime.tasks.base.PromptFormat`.
    """

    def __init__(
        self,
        *,
        path: str,
        scorer: str = "bidirl.runtime.tasks.scorers.exact_match",
        prompt_key: str = "prompt",
        bad_lines: Literal["refuse", "skip"] = "refuse",
        max_line_bytes: int = 1 << 20,
        shuffle: bool = True,
        seed: int = 0,
        prompt_format: PromptFormat | None = None,
    ) -> None:
        super().__init__(prompt_format=prompt_format)
        if bad_lines not in ("refuse", "skip"):
            raise ConfigError(f"bad_lines: {bad_lines!r} is not known; use refuse or skip")
        self.scorer_path = scorer
        import_function("scorer", scorer)
        self.prompt_key = prompt_key
        self.shuffle, self.seed = shuffle, seed
        self.records, self.skipped = _load(Path(path), prompt_key, bad_lines, max_line_bytes)

    def example(self, index: int) -> Example:
        epoch, place = divmod(index, len(self.records))
        if self.shuffle:
            place = int(_order(len(self.records), self.seed, epoch)[place])
        record = self.records[place]
        return Example(record[self.prompt_key], record)

    def reward(self, payload: Mapping[str, Any], response_text: str) -> float:
        return float(import_function("scorer", self.scorer_path)(response_text, payload))


@lru_cache(maxsize=8)
def _order(count: int, seed: int, epoch: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, epoch]).permutation(count)


def _load(
    path: Path, prompt_key: str, bad_lines: str, max_line_bytes: int
) -> tuple[list[dict[str, Any]], list[BadLine]]:
    if not path.is_file():
        raise ConfigError(f"path: {path} does not exist or is not a file; give a file with one JSON object per line")
    records: list[dict[str, Any]] = []
    skipped: list[BadLine] = []
    number = 0
    for number, item in enumerate(read_jsonl(path, (prompt_key,), max_line_bytes), start=1):
        if not isinstance(item, BadLine) and not isinstance(item[prompt_key], str):
            item = BadLine(number, f"{prompt_key!r} is not a string")
        if not isinstance(item, BadLine):
            records.append(item)
        elif bad_lines == "refuse":
            raise ConfigError(f"path: {path}:{item.number} is {item.reason}; correct it or set bad_lines to skip")
        else:
            skipped.append(item)
            _log.warning("%s:%d skipped: %s", path, item.number, item.reason)
    if not records:
        raise ConfigError(
            f"path: {path} has no usable line among {number}; each needs a JSON object with {prompt_key!r}"
        )
    return records, skipped
