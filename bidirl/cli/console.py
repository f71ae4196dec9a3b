"""What commands print on: the terminal, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:  # it imports scipy, which most commands do without
    from bidirl.runtime.outputs.report import Report


def console() -> Console:
    """As wide as the terminal; wide enough for a table of several runs where there is none."""
    found = Console()
    return found if found.is_terminal else Console(width=160)


def show(report: Report, directory: Path | None = None) -> None:
    """Print a report, and write its files where a directory is named."""
    console().print(report.table(), markup=False)
    if directory is not None:
        for path in report.write(directory):
            print(path)
