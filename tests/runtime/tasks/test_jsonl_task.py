"""Prompt files of other people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bidirl.core.errors import ConfigError
from bidirl.runtime.tasks import JsonlTask
from bidirl.runtime.tasks.jsonl_file import BadLine, read_jsonl
from tests.runtime.tasks.helpers import Characters

GOOD = [{"prompt": f"{i} + 1 =", "answer": str(i + 1)} for i in range(5)]
BAD = {
    "not JSON": b"{oops",
    "empty": b"",
    "not UTF-8": b'{"prompt": "\xff"}',
    "longer than": b'{"prompt": "' + b"x" * 400 + b'"}',
    "not a JSON object": b"[1]",
    "no key": b'{"question": "1"}',
    "not a string": b'{"prompt": 3}',
    "not JSON (": b"[" * 150,
}


def write(path: Path, *lines: bytes) -> str:
    path.write_bytes(b"\n".join([*(json.dumps(record).encode() for record in GOOD), *lines]) + b"\n")
    return str(path)


def test_every_epoch_holds_every_example_once_in_its_own_order(tmp_path: Path) -> None:
    task = JsonlTask(path=write(tmp_path / "a.jsonl"), seed=1)
    task.bind(Characters(), 20)
    epochs = [[task.example(5 * epoch + i).question for i in range(5)] for epoch in range(3)]
    assert all(sorted(epoch) == [record["prompt"] for record in GOOD] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    prompt = task.prompt(7)
    assert task.reward(prompt.payload, f" {prompt.payload['answer']}\n") == 1.0
    ordered = JsonlTask(path=str(tmp_path / "a.jsonl"), shuffle=False)
    assert [ordered.example(i).question for i in range(5)] == epochs[0] or ordered.example(6).question == "1 + 1 ="


@pytest.mark.parametrize(("reason", "line"), BAD.items())
def test_a_bad_line_is_named_by_number(tmp_path: Path, reason: str, line: bytes) -> None:
    path = write(tmp_path / "a.jsonl", line, json.dumps(GOOD[0]).encode())
    with pytest.raises(ConfigError) as caught:
        JsonlTask(path=path, max_line_bytes=300)
    assert "a.jsonl:6 is " in str(caught.value) and reason in str(caught.value) and "\n" not in str(caught.value)
    skipping = JsonlTask(path=path, max_line_bytes=300, bad_lines="skip")
    assert len(skipping.records) == 6
    assert [bad.number for bad in skipping.skipped] == [6]


def test_a_scorer_is_named_by_import_path(tmp_path: Path) -> None:
    task = JsonlTask(path=write(tmp_path / "a.jsonl"), scorer="tests.runtime.tasks.helpers.starts_with_digit")
    assert [task.reward({}, text) for text in ("4", "four", "")] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path": "/nowhere.jsonl"}, ["path", "does not exist"]),
        ({"path": "/tmp"}, ["path", "not a file"]),
        ({"scorer": "plain"}, ["scorer", "package.module.function"]),
        ({"scorer": "no_such_package.score"}, ["scorer", "no_such_package"]),
        ({"scorer": "bidirl.runtime.tasks.scorers.exact_mach"}, ["scorer", "exact_match"]),
        ({"bad_lines": "ignore"}, ["bad_lines", "skip"]),
        ({"prompt_key": "question"}, ["path", "question"]),
        ({"prompt_key": "question", "bad_lines": "skip"}, ["path", "no usable line"]),
    ],
)
def test_wrong_settings_name_key_and_fix(tmp_path: Path, changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        JsonlTask(**({"path": write(tmp_path / "a.jsonl")} | changes))
    assert all(word in str(caught.value) for word in words)


@settings(max_examples=300, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.binary(max_size=300), st.integers(1, 64))
def test_no_bytes_crash_the_reader_and_lines_are_all_accounted_for(tmp_path: Path, data: bytes, limit: int) -> None:
    path = tmp_path / "fuzz.jsonl"
    path.write_bytes(data)
    items = list(read_jsonl(path, ("prompt",), limit))
    assert len(items) == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    assert all(isinstance(item, (dict, BadLine)) for item in items)
