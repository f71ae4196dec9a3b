"""A picture of a run: one lane per device, coloured by what the device did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bidirl.core.errors import ConfigError
from bidirl.runtime.outputs.trace import DECISIONS_LANE, read_trace

# Safe for the common forms of colour blindness; borrowed work is a lighter shade of the same hue.
COLOURS = {
    "rollout": "#0072b2",
    "borrowed_rollout": "#7fc4ee",
    "train": "#d55e00",
    "borrowed_train": "#f5b07a",
    "switch": "#333333",
}


def plot_timeline(run: Path, target: Path, start_seconds: float = 0.0, end_seconds: float | None = None) -> Path:
    """Draw ``run``'s trace into ``target`` (PNG) and return it.

    Raises:
        ConfigError: if the run has no trace.
    """
    trace = run / "trace.json"
    if not trace.is_file():
        raise ConfigError(f"{run} is not a run directory: it has no trace.json")
    events = read_trace(trace)
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    names.pop(DECISIONS_LANE, None)
    title = next((e["args"]["name"] for e in events if e.get("name") == "process_name"), "bidirl")
    bars = [e for e in events if e.get("ph") == "X" and e["tid"] in names]
    end = end_seconds if end_seconds is not None else max(((e["ts"] + e["dur"]) / 1e6 for e in bars), default=1.0)
    _draw(names, bars, f"{title}: {run.name}", (start_seconds, max(end, start_seconds + 1e-9)), target)
    return target


def _draw(
    names: dict[int, str], bars: list[dict[str, Any]], title: str, window: tuple[float, float], target: Path
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(12, 1.2 + 0.45 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for row, device in enumerate(names):
        for activity, colour in COLOURS.items():
            spans = [(e["ts"] / 1e6, e["dur"] / 1e6) for e in bars if e["tid"] == device and e["name"] == activity]
            axes.broken_barh(spans, (row - 0.4, 0.8), facecolors=colour, linewidth=0)
    axes.set_yticks(range(len(names)), list(names.values()))
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(*window)
    axes.set_xlabel("seconds since the run started (white: idle)")
    axes.set_title(title)
    handles = [Patch(color=colour, label=name.replace("_", " ")) for name, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.savefig(target, dpi=150)
