"""Runs of the command ``bidirl`` in processes of their own, as a user would start them, and what they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml

from bidirl.core.errors import BidirlError
from bidirl.runtime.outputs import read_summary

_SAMPLE_SECONDS = 1.0


def bidirl(arguments: Sequence[str]) -> float:
    """Run ``bidirl`` with these arguments, its progress shown; returns the peak memory of all its processes in GiB.

    Memory is the sum of proportional set sizes, which counts a page shared by n processes as 1/n in each.

    Raises:
        BidirlError: if it ends with another status than 0.
    """
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen([sys.executable, "-m", "bidirl.cli.main", *arguments], env=environment)
    peak, ended = [0.0], threading.Event()
    watcher = threading.Thread(target=_watch_memory, args=(process.pid, peak, ended), daemon=True)
    watcher.start()
    try:
        status = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        ended.set()
    watcher.join()
    if status != 0:
        raise BidirlError(f"'bidirl {' '.join(arguments)}' ended with status {status}")
    return peak[0]


def train(config: Path, directory: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """One real run into ``directory``; its summary, with the row's ``peak_memory_gib``."""
    peak = bidirl(["train", str(config), "--output_dir", str(directory), "--name", directory.name, *_options(options)])
    summary = read_summary(directory)
    summary["peak_memory_gib"] = peak
    return summary


def simulate_like(run: Path, config: Path, directory: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The same job in the simulated cluster, with the timings that ``run`` measured and the lengths that it saw."""
    values = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    workload = {
        "class_path": "ReplayWorkload",
        "init_args": {
            "path": str(run / "ledger.jsonl"),
            "group_size": values["group_size"],
            "max_response_tokens": values["ray"]["max_response_tokens"],
        },
    }
    world = {
        "simulation.workload": json.dumps(workload),
        "simulation.timings_file": run / "summary.json",
        "simulation.max_num_seqs": values["ray"]["max_num_seqs"],
    }
    target = {"output_dir": directory, "name": directory.name}
    bidirl(["simulate", str(config), *_options({**target, **world, **options})])
    return read_summary(directory)


def ensure_model(target: Path, arguments: Sequence[str]) -> None:
    """Build a model with ``bidirl model`` unless it is there; half of a model is never left behind."""
    if not (target / "config.json").is_file():
        partial = target.with_name(target.name + ".partial")
        if partial.exists():
            for file in partial.iterdir():
                file.unlink()
            partial.rmdir()
        bidirl([word if word != str(target) else str(partial) for word in ("model", *arguments)])
        partial.rename(target)


def new_directory(name: str) -> Path:
    """A fresh directory under ``runs/``, named after the moment."""
    directory = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    directory.mkdir(parents=True)
    return directory


def _options(options: Mapping[str, Any]) -> list[str]:
    return [word for key, value in options.items() for word in (f"--{key}", str(value))]


def _watch_memory(process_id: int, peak: list[float], ended: threading.Event) -> None:
    while not ended.wait(_SAMPLE_SECONDS):
        peak[0] = max(peak[0], _proportional_bytes(process_id) / 2**30)


def _proportional_bytes(process_id: int) -> float:
    total = 0.0
    try:
        root = psutil.Process(process_id)
        for member in (root, *root.children(recursive=True)):
            try:
                total += member.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
    except psutil.NoSuchProcess:
        return 0.0
    return total
