"""``bidirl train`` for real: a run with leases in both directions, a killed engine, an interrupted run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import write_job

pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("vllm")
pytest.importorskip("deepspeed")

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def start(config: Path) -> subprocess.Popen[str]:
    """``bidirl train`` in a session of its own, its output in a pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "bidirl.cli.main", "train", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )


def after_first_step(process: subprocess.Popen[str], run: Path) -> list[psutil.Process]:
    """Wait until one step is on disk; every process of the run."""
    metrics = run / "metrics.jsonl"
    deadline = time.monotonic() + 200
    while not (metrics.is_file() and metrics.stat().st_size):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return psutil.Process(process.pid).children(recursive=True)


def kill(processes: list[psutil.Process], actor: str, limit: int) -> None:
    """SIGKILL to the first processes of an actor class."""
    found = [process for process in processes if actor in " ".join(process.cmdline())]
    assert len(found) == 2
    for process in found[:limit]:
        process.send_signal(signal.SIGKILL)


def gone(processes: list[psutil.Process], within_seconds: float = 15.0) -> bool:
    """Whether all of them have ended."""
    return not psutil.wait_procs(processes, timeout=within_seconds)[1]


def test_a_run_borrows_in_both_directions_and_leaves_everything(tmp_path: Path, real_job: dict[str, Any]) -> None:
    process = start(write_job(tmp_path, real_job))
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    run = tmp_path / "run"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["world"] == "ray"
    assert summary["steps"] == 4
    assert all(direction["admitted"] >= 1 for direction in summary["leases"].values())
    assert summary["switch_cost_seconds"]["trainer_on_rollpool"]["grad"] > 0
    assert summary["groups"]["consumed"] == 24
    assert summary["staleness"]["max"] == 0
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == 4
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    events = json.loads((run / "trace.json").read_text())
    names = {event["name"] for event in (events["traceEvents"] if isinstance(events, dict) else events)}
    assert {"borrowed_rollout", "borrowed_train"} <= names
    assert "run directory" in out


def test_a_killed_engine_is_restarted_and_nothing_is_lost(tmp_path: Path, real_job: dict[str, Any]) -> None:
    process = start(write_job(tmp_path, {**real_job, "policy": "NoBorrow", "num_steps": 8}))
    processes = after_first_step(process, tmp_path / "run")
    kill(processes, "RolloutActor", limit=1)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert sum(summary["restarts"].values()) == 1
    assert summary["steps"] == 8
    assert summary["groups"]["consumed"] == 48
    assert gone(processes)


def test_a_killed_trainer_ends_the_run_with_its_name_and_what_was_done(
    tmp_path: Path, real_job: dict[str, Any]
) -> None:
    process = start(write_job(tmp_path, {**real_job, "policy": "NoBorrow", "num_steps": 500}))
    processes = after_first_step(process, tmp_path / "run")
    kill(processes, "TrainerActor", limit=2)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert [line for line in err.splitlines() if line.startswith("bidirl: LearnerLost: trainer@trainpool:0 died")], err
    assert "Traceback" not in err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["error"].startswith("LearnerLost")
    assert summary["steps"] >= 1
    assert gone(processes)


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path, real_job: dict[str, Any]) -> None:
    process = start(write_job(tmp_path, {**real_job, "num_steps": 500}))
    processes = after_first_step(process, tmp_path / "run")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "bidirl: interrupted"
    assert "Traceback" not in err
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] >= 1
    assert gone(processes)
