"""JSON that any reader can parse: NaN and infinity become null, numpy scalars become numbers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

_ALREADY_PLAIN = frozenset({str, int, bool, type(None)})


def plain(value: Any) -> Any:
    """``value`` in terms of strict JSON."""
    if type(value) in _ALREADY_PLAIN:
        return value
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain(child) for child in value]
    if isinstance(value, (set, frozenset)):
        return [plain(child) for child in sorted(value)]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, Mapping):  # an abstract class: slow to ask, so last (decision rows list every open chunk)
        return {str(key): plain(child) for key, child in value.items()}
    return str(value)


def dumps(value: Any, indent: int | None = None) -> str:
    """``value`` as strict JSON text."""
    write = partial(json.dumps, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        return write(value, default=plain)
    except (TypeError, ValueError):  # a number that JSON lacks, or a key that is no string: rare, so tried last
        return write(plain(value))


def write_atomically(path: Path, value: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(dumps(value, indent=2) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


class RowWriter:
    """One JSON object per line, handed to the operating system as it comes."""

    def __init__(self, path: Path) -> None:
        self._stream: IO[str] = path.open("x", encoding="utf-8")

    def write(self, row: Any) -> None:
        """Append one row."""
        self._stream.write(dumps(row) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Idempotent."""
        self._stream.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows up to the first line that is none: a last line that a crash cut off is left out."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    return rows
