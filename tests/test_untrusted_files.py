"""Files that come from other people: whatever is in them, a reader answers, or says in one line what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from bidirl.cli.config import Config
from bidirl.cli.parsing import parse_config
from bidirl.cli.resume import find_resume
from bidirl.core.cluster import Cluster
from bidirl.core.errors import ConfigError
from bidirl.core.groups import Prompt
from bidirl.models.sim_calibration import load_timings
from bidirl.runtime.outputs import comparison_table, read_summary
from bidirl.runtime.outputs.checkpoints import find_fault, read_snapshot
from bidirl.runtime.outputs.jsonl import read_rows
from bidirl.runtime.sim.replay import read_lengths
from bidirl.runtime.tasks import JsonlTask
from tests.cli.test_parsing import sim

fuzz = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
raw = st.binary(max_size=60) | st.sampled_from([b"", b"[" * 5000, b"{" * 5000, b"\xff\xfe", b"null", b'{"a":' * 3000])
ROW = {"group_id": 0, "prompt_tokens": 4, "response_tokens": [3, 4], "rewards": [0.0, 1.0], "event": "consumed"}


def keyed(content: Any) -> st.SearchStrategy[Any]:
    """``content`` with one value anywhere inside replaced by any other."""
    places = list(_places(content))
    return st.tuples(st.sampled_from(places), values).map(lambda pair: _replaced(content, *pair))


def _places(content: Any) -> Any:
    yield ()
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in inner:
        yield from ((key, *place) for place in _places(value))


def _replaced(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    copied = dict(content) if isinstance(content, dict) else list(content)
    copied[place[0]] = _replaced(content[place[0]], place[1:], value)
    return copied


def answers(read: Callable[[], Any]) -> None:
    try:
        read()
    except ConfigError as error:
        assert str(error)
        assert "\n" not in str(error)


@fuzz
@given(raw | keyed(sim()).map(lambda content: yaml.safe_dump(content).encode()))
@example(b"name: &a [*a]")
@example(b"? [a]\n: b")
@example(b"a: &x [1]\nb: {<<: *x}")
def test_configs(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(content)
    answers(lambda: parse_config(Config, file, (), ("task", "ray")))
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    (run / "config.yaml").write_bytes(content)
    answers(lambda: find_resume(run, "name: job"))


@fuzz
@given(
    st.lists(raw | keyed({"prompt": "1 + 1 =", "answer": "2"}).map(lambda row: json.dumps(row).encode()), max_size=4)
)
def test_prompt_files(tmp_path: Path, lines: list[bytes]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b"\n".join(lines))
    answers(lambda: JsonlTask(path=str(file)))
    answers(lambda: JsonlTask(path=str(file), bad_lines="skip", max_line_bytes=100))


@fuzz
@given(st.lists(raw | keyed(ROW).map(lambda row: json.dumps(row).encode()), max_size=4))
def test_logs(tmp_path: Path, lines: list[bytes]) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(b"\n".join(lines))
    assert all(isinstance(row, dict) for row in read_rows(file))
    answers(lambda: read_lengths(str(file)))


SUMMARY = {
    "world": "sim",
    "policy": "NoBorrow()",
    "throughput_tokens_per_second": 3.0,
    "work_conserving_bound_tokens_per_second": 4.0,
    "device_seconds_by_pool": {"rollpool": {"idle": 1.0}, "trainpool": {"idle": 1.0}},
    "leases": {"rollouter_on_trainpool": {"admitted": 1, "refused": 2, "realised_benefit_seconds": 1.0}},
    "switch_cost_seconds": {"rollouter_on_trainpool": {"in": 1.0, "out": 1.0, "grad": None}},
    "reward": {"first": 0.0, "last": 1.0},
    "staleness": {"mean": 0.5, "max": 1},
}


@fuzz
@given(raw | keyed(SUMMARY).map(lambda summary: json.dumps(summary).encode()))
def test_summaries(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "summary.json").write_bytes(content)
    answers(lambda: comparison_table([("run", read_summary(tmp_path))]))


@fuzz
@given(raw | values.map(lambda value: json.dumps(value).encode()))
def test_timings(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "timings.json"
    file.write_bytes(content)
    answers(lambda: load_timings(str(file)))


@fuzz
@given(raw | keyed({"version": 1, "sha256": {"state.json": "0"}}).map(lambda value: json.dumps(value).encode()))
def test_manifests(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    assert find_fault(tmp_path) is not None


class Prompts:
    """All that reading a checkpoint needs of a cluster."""

    def prompt(self, group_id: int) -> Prompt:
        return Prompt(int(group_id), 4)


STATE = {
    "version": 2,
    "next_group_id": 9,
    "num_consumed": 8,
    "older_versions": [1],
    "resolved_versions": [0, 1, 2],
    "dropped_ids": [],
    "dropped": {},
    "estimates": {},
    "unfinished": [
        {
            "group_id": 8,
            "started_version": 1,
            "num_interruptions": 0,
            "samples": [{"spans": [{"version": 1, "num_tokens": 3}], "finish_reason": None, "reward": None}],
        }
    ],
    "finished": [],
}


@fuzz
@given(raw | keyed(STATE).map(lambda state: json.dumps(state).encode()), st.booleans(), raw)
def test_checkpoint_states(tmp_path: Path, state: bytes, whole: bool, arrays: bytes) -> None:
    (tmp_path / "state.json").write_bytes(state)
    (tmp_path / "groups.safetensors").write_bytes(save({}) if whole else arrays)
    answers(lambda: read_snapshot(tmp_path, cast(Cluster, Prompts())))


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"sha256": {"../secret": "0"}}))
    fault = find_fault(tmp_path)
    assert fault is not None
    assert "no file of it" in fault


@pytest.mark.parametrize("name", ["config.yaml", "summary.json"])
def test_directories_where_files_should_be(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    answers(lambda: read_summary(tmp_path))
    answers(lambda: find_resume(tmp_path, "name: job"))
