"""What a person sees while a run goes on: a Rich display on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bidirl.core.records import Recorder, Row

LABEL = {"sim": "simulated", "ray": "real"}


class ProgressRecorder(Recorder):
    """Shows steps, throughput, reward and open questions of the scheduler."""

    def __init__(self, name: str, world: str, num_steps: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._label = f"{name} ({LABEL.get(world, world)})"
        self._num_steps = num_steps
        self._num_admitted = 0
        self._num_refused = 0
        self._display: Progress | None = None
        if self._console.is_terminal:
            self._display = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[status]}"),
                console=self._console,
            )
            self._task = self._display.add_task(self._label, total=num_steps, status="starting")
            self._display.start()

    def decision(self, row: Row) -> None:
        """Counts verdicts."""
        if row.get("admit"):
            self._num_admitted += 1
        else:
            self._num_refused += 1

    def step(self, row: Mapping[str, float]) -> None:
        """One more step."""
        status = (
            f"{row.get('perf/throughput', 0.0):,.0f} tok/s  reward {row.get('reward/mean', float('nan')):.3f}  "
            f"staleness {row.get('off_policy/staleness/max', 0.0):.0f}  "
            f"borrowed {self._num_admitted}, refused {self._num_refused}"
        )
        version = int(row.get("version", 0))
        if self._display is not None:
            self._display.update(self._task, completed=version, status=status)
        else:
            at = f"{row.get('time_seconds', 0.0):8.1f} s"
            self._console.print(f"{self._label}  step {version:>3}/{self._num_steps}  {at}  {status}", soft_wrap=True)

    def progress(self, text: str = "", **fields: Any) -> None:
        """A message, for example that engines are starting."""
        message = "  ".join([text, *(f"{key} {value}" for key, value in fields.items())]).strip()
        if self._display is not None:
            self._display.update(self._task, status=message)
        else:
            self._console.print(f"{self._label}  {message}", soft_wrap=True)

    def close(self, summary: Row) -> None:
        """Leave the terminal as it was."""
        if self._display is not None:
            self._display.stop()
        if error := summary.get("error"):
            self._console.print(f"{self._label}  ended with {error}", soft_wrap=True, markup=False)
