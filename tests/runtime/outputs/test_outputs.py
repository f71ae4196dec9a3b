import json
import math
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.core.scheduler import DECISION_SCHEMA
from bidirl.core.topology import build_topology
from bidirl.runtime.outputs import FileRecorder, ProgressRecorder, make_run_directory, plot_timeline, read_summary
from bidirl.runtime.outputs.compare import COLUMNS, comparison_row, comparison_table
from bidirl.runtime.outputs.decision_log import DecisionWriter, read_decisions
from bidirl.runtime.outputs.jsonl import dumps, read_rows
from bidirl.runtime.outputs.trace import read_trace

TOPOLOGY = build_topology(1, 1)


def recorder(tmp_path: Path) -> FileRecorder:
    directory = make_run_directory(tmp_path / "run", "staleness: 1.0\n", 7, ["bidirl", "simulate"])
    return FileRecorder(directory, TOPOLOGY, "sim")


def fill(target: FileRecorder) -> None:
    target.activity(0, "rollout", 0.0, 2.0, "batch 0")
    target.activity(1, "borrowed_rollout", 0.5, 2.0, "lease 1")
    target.activity(1, "idle", 0.0, 0.5)
    target.decision({"admit": True, "direction": "rollouter_on_trainpool", "seconds": 0.5, "reason": "x"})
    target.step({"version": 1, "time_seconds": 2.0, "perf/throughput": 10.0, "kl": math.nan})
    target.lease({"lease_id": 1, "benefit_seconds": np.float64(1.5)})
    target.ledger({"event": "issued", "group_id": np.int64(3)})


def test_rows_are_on_disk_before_the_run_ends(tmp_path: Path) -> None:
    target = recorder(tmp_path)
    fill(target)
    assert read_rows(target.directory / "metrics.jsonl")[0]["kl"] is None
    assert read_rows(target.directory / "ledger.jsonl") == [{"event": "issued", "group_id": 3}]
    assert read_rows(target.directory / "leases.jsonl")[0]["benefit_seconds"] == 1.5
    names = [event["name"] for event in read_trace(target.directory / "trace.json") if event["ph"] == "X"]
    assert names == ["rollout", "borrowed_rollout"]
    assert not (target.directory / "summary.json").exists()


def test_a_closed_trace_is_strict_json_with_one_lane_per_device(tmp_path: Path) -> None:
    target = recorder(tmp_path)
    fill(target)
    target.close({"steps": 1})
    events = json.loads((target.directory / "trace.json").read_text())
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes[0] == "rollpool device 0"
    assert lanes[1] == "trainpool device 1"
    assert any("simulated" in e["args"]["name"] for e in events if e["name"] == "process_name")
    assert json.loads((target.directory / "summary.json").read_text()) == {"steps": 1}


def test_a_cut_off_row_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": ')
    assert read_rows(tmp_path / "rows.jsonl") == [{"a": 1}]


sizes = st.tuples(st.sampled_from(list(SubStage)), st.integers(1, 9))


@given(st.lists(st.tuples(st.lists(sizes, max_size=6), st.integers(0, 6)), max_size=12))
def test_chunks_are_listed_once_and_read_back_where_they_were(batches: list[tuple[list[Any], int]]) -> None:
    """Queues that shrink from the head, begin anew, are asked about twice, or are empty."""
    works = [tuple(chunks[skip:]) for chunks, most in batches for skip in range(min(most, len(chunks)) + 1)]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "decisions.jsonl"
        writer = DecisionWriter(path)
        for number, chunks in enumerate(works):
            work = {"chunks": chunks, "comm_bytes": 0.0}
            writer.write({"schema": DECISION_SCHEMA, "opportunity_id": number, "trainer_work": work})
        writer.close()
        listed = sum('"chunks"' in line and '"chunks": []' not in line for line in path.read_text().splitlines())
        rows, warning = read_decisions(path)
    assert warning is None
    assert [[tuple(chunk) for chunk in row["trainer_work"]["chunks"]] for row in rows] == [list(w) for w in works]
    assert listed <= len(batches)


@pytest.mark.parametrize("work", [{"chunks_of": 7, "skip": 0}, {"chunks_of": [], "skip": 0}, {"chunks_of": 0}])
def test_a_row_that_names_chunks_of_no_row_is_refused(tmp_path: Path, work: dict[str, Any]) -> None:
    log = tmp_path / "decisions.jsonl"
    rows = ({"chunks": [["actor_update", 3]]}, work)
    log.write_text(
        "".join(
            json.dumps({"schema": DECISION_SCHEMA, "opportunity_id": i, "trainer_work": row}) + "\n"
            for i, row in enumerate(rows)
        )
    )
    with pytest.raises(ConfigError, match=r"jsonl:2 has the chunks of decision"):
        read_decisions(log)


def test_an_existing_run_is_never_overwritten(tmp_path: Path) -> None:
    recorder(tmp_path)
    with pytest.raises(ConfigError, match="exists already and is not overwritten"):
        recorder(tmp_path)


def test_provenance_names_seed_and_versions(tmp_path: Path) -> None:
    found = json.loads((recorder(tmp_path).directory / "provenance.json").read_text())
    assert found["seed"] == 7
    assert found["argv"] == ["bidirl", "simulate"]
    assert "numpy" in found["packages"]


def test_json_is_strict() -> None:
    assert json.loads(dumps({"a": float("inf"), "b": np.arange(2), "c": (True, None), "d": Path("x")})) == {
        "a": None,
        "b": [0, 1],
        "c": [True, None],
        "d": "x",
    }


def test_timeline_is_drawn_even_from_a_run_that_did_not_end(tmp_path: Path) -> None:
    target = recorder(tmp_path)
    fill(target)
    picture = plot_timeline(target.directory, tmp_path / "timeline.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="not a run directory"):
        plot_timeline(tmp_path, tmp_path / "x.png")


SUMMARY = {
    "world": "sim",
    "policy": "NoBorrow()",
    "throughput_tokens_per_second": 90.0,
    "work_conserving_bound_tokens_per_second": 100.0,
    "device_seconds_by_pool": {"rollpool": {"rollout": 3.0, "idle": 1.0}, "trainpool": {"train": 1.0, "idle": 1.0}},
    "leases": {
        "rollouter_on_trainpool": {"admitted": 2, "refused": 3, "realised_benefit_seconds": 1.0},
        "trainer_on_rollpool": {"admitted": 0, "refused": 1, "realised_benefit_seconds": 0.0},
    },
    "switch_cost_seconds": {"rollouter_on_trainpool": {"in": 0.1, "out": 0.2, "grad": None}},
    "reward": {"first": 0.1, "last": 0.5},
    "staleness": {"mean": 0.5, "max": 1},
}


def test_comparison_shows_every_figure() -> None:
    row = dict(zip(COLUMNS, comparison_row("a", SUMMARY), strict=True))
    assert row["of bound"] == "0.90"
    assert (row["idle roll"], row["idle train"]) == ("25.0%", "50.0%")
    assert row["R-on-T admitted/refused"] == "2/3"
    assert row["R-on-T in/out/grad s"] == "0.10/0.20/–"
    assert row["world"] == "simulated"


def test_a_failed_run_keeps_its_row() -> None:
    row = comparison_row("a", {"world": "ray", "error": "WorkerError: gone"})
    assert len(row) == len(COLUMNS)
    assert row[2] == "failed: WorkerError: gone"
    assert comparison_table([("a", SUMMARY), ("b", SUMMARY)]).row_count == len(COLUMNS) - 1


def test_summary_takes_the_bound_from_the_config(tmp_path: Path) -> None:
    target = recorder(tmp_path)
    target.close({"steps": 1})
    assert read_summary(target.directory)["staleness_bound"] == 1.0


def test_progress_is_plain_lines_where_there_is_no_terminal() -> None:
    stream = StringIO()
    progress = ProgressRecorder("job", "sim", 3, Console(file=stream))
    progress.step({"version": 1, "time_seconds": 1.0, "perf/throughput": 10.0, "reward/mean": 0.5})
    progress.close({"error": "StallError: nobody moves"})
    assert "job (simulated)  step   1/3" in stream.getvalue()
    assert "StallError" in stream.getvalue()
