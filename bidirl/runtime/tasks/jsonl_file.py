"""Reading a JSON-lines file that somebody else wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be used: 1-based number and why."""

    number: int
    reason: str


def read_jsonl(path: Path, required: tuple[str, ...], max_line_bytes: int) -> Iterator[dict[str, Any] | BadLine]:
    """Yield one record or :class:`BadLine` per line, holding at most one line in memory.

    Args:
        path: the file.
        required: keys that a record must have.
        max_line_bytes: a longer line is bad; it is passed over without being read whole.
    """
    with path.open("rb") as stream:
        for number, line in enumerate(_bounded_lines(stream, max_line_bytes), start=1):
            if line is None:
                yield BadLine(number, f"longer than {max_line_bytes} bytes")
                continue
            record = _parse(line, required)
            yield BadLine(number, record) if isinstance(record, str) else record


def _bounded_lines(stream: BinaryIO, limit: int) -> Iterator[bytes | None]:
    while line := stream.readline(limit + 1):
        if len(line) <= limit or line.endswith(b"\n"):
            yield line
            continue
        while (rest := stream.readline(limit)) and not rest.endswith(b"\n"):
            pass
        yield None


def _parse(line: bytes, required: tuple[str, ...]) -> dict[str, Any] | str:
    """The record, or what is wrong with it."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    if not text.strip():
        return "empty"
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({str(error)[:80]})"
    if not isinstance(record, dict):
        return "not a JSON object"
    for key in required:
        if key not in record:
            return f"no key {key!r}"
    return record
