"""``make bench``: what the README states about speed, in one command that anyone can rerun.

* real: no borrowing and model-guided borrowing on two devices, runs of both interleaved, on three workloads;
* simulator: a whole process that simulates 32 devices;
* decisions: latency of one decision.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bidirl.cli.console import console as terminal
from bidirl.core.errors import BidirlError
from bidirl.policies.model_guided import ModelGuided
from experiments.bench_decisions import decide_latency_seconds
from experiments.job_runs import bidirl, ensure_model, new_directory, train

CONFIG = Path("experiments/bench.yaml")
TINY, GROWN = Path("models/cache/tiny"), Path("models/cache/grown")
POLICIES = ("NoBorrow", "ModelGuided")
WORKLOADS: Mapping[str, Mapping[str, Any]] = {
    "train-heavy, s=0": {"staleness": 0, "ray.max_num_seqs": 64},
    "train-heavy, s=1": {"staleness": 1, "ray.max_num_seqs": 64},
    "rollout-heavy, s=1": {
        "staleness": 1,
        "ray.max_num_seqs": 2,
        "groups_per_batch": 8,
        "max_tokens_per_chunk": 1024,
    },
}
"""How many sequences an engine runs at once decides which stage is slow."""


def main() -> int:
    """Run the parts that are asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parts: dict[str, Callable[[Path, Console, int], None]] = {
        "decisions": _decisions,
        "simulator": _simulator,
        "real": _real,
    }
    parser.add_argument("--only", choices=tuple(parts), help="one part (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each row (default: 3)")
    arguments = parser.parse_args()
    console = terminal()
    try:
        directory = new_directory("bench")
        for name, part in parts.items():
            if arguments.only in (None, name):
                part(directory, console, arguments.repeats)
    except BidirlError as error:
        console.print(f"bench: {error}", style="red", highlight=False)
        return 1
    return 0


def _real(directory: Path, console: Console, repeats: int) -> None:
    ensure_model(TINY, ["tiny", str(TINY)])
    ensure_model(GROWN, ["grow", str(TINY), str(GROWN), "--hidden_size", "512", "--num_layers", "6"])
    found: dict[str, dict[str, list[dict[str, Any]]]] = {name: {p: [] for p in POLICIES} for name in WORKLOADS}
    for repeat in range(repeats):
        for number, (name, options) in enumerate(WORKLOADS.items()):
            for policy in POLICIES:
                console.rule(f"{name}: {policy}, run {repeat + 1} of {repeats}")
                target = directory / f"{number}-{policy}-{repeat}"
                found[name][policy].append(train(CONFIG, target, {"policy": policy, **options}))
    console.print(real_table(found))
    peak = max(run["peak_memory_gib"] for rows in found.values() for runs in rows.values() for run in runs)
    console.print(f"peak memory of a run {peak:.1f} GiB; runs in {directory}")
    (directory / "real.json").write_text(json.dumps(found), encoding="utf-8")


def real_table(found: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> Table:
    """Per workload and policy: throughput, share of the work-conserving bound, gain; each as min / median / max."""
    table = Table(title="Real runs on two devices: min / median / max")
    for column in ("workload", "policy", "tokens/s", "of bound", "over NoBorrow", "rollout : train", "switch", "idle"):
        table.add_column(column, justify="left" if column in ("workload", "policy") else "right")
    for workload, rows in found.items():
        base = [run["throughput_tokens_per_second"] for run in rows["NoBorrow"]]
        for policy, runs in rows.items():
            speed = [run["throughput_tokens_per_second"] for run in runs]
            bound = [x / run["work_conserving_bound_tokens_per_second"] for x, run in zip(speed, runs, strict=True)]
            gains = [x / y for x, y in zip(speed, base, strict=True)]
            table.add_row(
                workload,
                policy,
                _spread(speed, ",.0f"),
                _spread(bound, ".2f"),
                _spread(gains, ".2f"),
                f"{statistics.median(map(_stage_ratio, runs)):.2f}",
                f"{statistics.median(_share(run, 'switch') for run in runs):.1%}",
                f"{statistics.median(_share(run, 'idle') for run in runs):.1%}",
            )
    return table


def _spread(values: Sequence[float], form: str) -> str:
    return " / ".join(format(value, form) for value in (min(values), statistics.median(values), max(values)))


def _stage_ratio(run: Mapping[str, Any]) -> float:
    seconds = run["device_seconds"]
    rollout, training = (seconds[stage] + seconds[f"borrowed_{stage}"] for stage in ("rollout", "train"))
    return float(rollout / training)


def _share(run: Mapping[str, Any], activity: str) -> float:
    return float(run["device_seconds"][activity] / sum(run["device_seconds"].values()))


def _simulator(directory: Path, console: Console, repeats: int) -> None:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        bidirl(["simulate", "experiments/sim32.yaml", "--tracking", "none"])
        seconds.append(time.perf_counter() - began)
    console.print(f"simulated, 32 devices, 60 x 8 samples, 30 steps, whole process: {_spread(seconds, '.2f')} s")


def _decisions(directory: Path, console: Console, repeats: int) -> None:
    for num_chunks in (50, 500):
        median, p99 = decide_latency_seconds(ModelGuided(), num_chunks)
        console.print(f"ModelGuided, {num_chunks} chunks: {median * 1e3:.3f} ms median, {p99 * 1e3:.3f} ms p99")


if __name__ == "__main__":
    sys.exit(main())
