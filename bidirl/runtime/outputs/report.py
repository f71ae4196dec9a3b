"""A table of results and its chart, written as CSV, Markdown, LaTeX and PNG; means with 95% intervals."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from rich.table import Table
from scipy.stats import t as student

NOT_RUN = "not run"
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}"}


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the half width of its two-sided 95% Student-t interval; 0 for one value."""

    mean: float
    half_width: float
    count: int

    def text(self, form: str = ".3g") -> str:
        """``mean ± half width``."""
        return f"{self.mean:{form}} ± {self.half_width:{form}}"


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95% interval of independent values, at least one."""
    if len(values) < 2:
        return Interval(float(values[0]), 0.0, 1)
    spread = stdev(values) / sqrt(len(values))
    return Interval(fmean(values), float(student.ppf(0.975, len(values) - 1)) * spread, len(values))


@dataclass(frozen=True, slots=True)
class Chart:
    """Means over positions, one series per name; drawn as bars or, where positions are numbers, as lines.

    Attributes:
        positions: what is on the x axis.
        series: name → one interval per position, ``None`` where nothing was run.
    """

    x_label: str
    y_label: str
    positions: tuple[str, ...]
    series: Mapping[str, Sequence[Interval | None]]
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """One table.

    Attributes:
        name: names the files.
        title: caption; says "simulated" where it is.
        columns: headers.
        rows: cells as text, one per column.
        notes: lines under the table: sources, what was not run, how to read it.
        chart: drawn beside it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    chart: Chart | None = None

    def markdown(self) -> str:
        """Title, table and notes."""
        lines = [f"### {self.title}", "", _pipes(self.columns), _pipes("---" for _ in self.columns)]
        lines += [_pipes(cell.replace("|", r"\|") for cell in row) for row in self.rows]
        lines += ["", *(f"* {note}" for note in self.notes)] if self.notes else []
        return "\n".join(lines) + "\n"

    def table(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title, caption="\n".join(self.notes) or None, caption_justify="left")
        for index, name in enumerate(self.columns):
            table.add_column(name, justify="right" if index else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def latex(self) -> str:
        """A ``tabular`` in a ``table`` with the title as its caption."""
        body = [" & ".join(map(_latex, row)) + r" \\" for row in (self.columns, *self.rows)]
        body.insert(1, r"\hline")
        head = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.title)}}}"]
        head.append(rf"\begin{{tabular}}{{{'l' + 'r' * (len(self.columns) - 1)}}}")
        notes = [rf"% {note}" for note in self.notes]
        return "\n".join([*head, *body, r"\end{tabular}", r"\end{table}", *notes]) + "\n"

    def write(self, directory: Path) -> list[Path]:
        """Write ``name``.csv, .md, .tex and, with a chart, .png; earlier files of the name are replaced."""
        directory.mkdir(parents=True, exist_ok=True)
        paths = [directory / f"{self.name}.{kind}" for kind in ("csv", "md", "tex")]
        with paths[0].open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(self.columns)
            writer.writerows(self.rows)
        paths[1].write_text(self.markdown(), encoding="utf-8")
        paths[2].write_text(self.latex(), encoding="utf-8")
        if self.chart is not None:
            paths.append(directory / f"{self.name}.png")
            draw(self.chart, self.title, paths[-1])
        return paths


def draw(chart: Chart, title: str, target: Path) -> None:
    """Draw a chart with error bars into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    width = 0.8 / max(1, len(chart.series))
    for index, (name, points) in enumerate(chart.series.items()):
        known = [(i, point) for i, point in enumerate(points) if point is not None]
        x = [i if chart.lines else i + (index + 0.5) * width - 0.4 for i, _ in known]
        y, error = [point.mean for _, point in known], [point.half_width for _, point in known]
        colour = _PALETTE[index % len(_PALETTE)]
        if chart.lines:
            axes.errorbar(x, y, error, label=name, color=colour, marker="o", capsize=3)
        else:
            axes.bar(x, y, width * 0.95, yerr=error, label=name, color=colour, capsize=2)
    axes.set_xticks(range(len(chart.positions)), chart.positions)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.set_title(title, fontsize=10, wrap=True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(chart.series) > 1:
        figure.legend(loc="outside lower center", ncols=min(4, len(chart.series)), frameon=False)
    figure.savefig(target, dpi=150)


def _pipes(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _latex(text: str) -> str:
    return (
        "".join(_LATEX.get(character, character) for character in text).replace("±", r"$\pm$").replace("×", r"$\times$")
    )
