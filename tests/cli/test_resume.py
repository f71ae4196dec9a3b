"""Checkpoints in the simulated world: a resumed run ends as one that was never interrupted, also by itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bidirl.cli import worlds
from bidirl.cli.config import Config
from bidirl.cli.main import main
from bidirl.core.cluster import Cluster
from bidirl.core.errors import ConfigError
from bidirl.runtime.outputs.checkpoints import find_fault, latest_checkpoint
from bidirl.runtime.sim.faults import ScriptedFaults
from tests.cli.test_main import TIMINGS
from tests.cli.test_parsing import BASE

WORKLOAD = {
    "class_path": "LognormalWorkload",
    "init_args": {
        "group_size": 4,
        "max_response_tokens": 64,
        "median_response_tokens": 12.0,
        "sigma": 1.0,
        "median_prompt_tokens": 8.0,
    },
}


def simulate(directory: Path, name: str, *options: str, **keys: Any) -> int:
    content = {**BASE, "policy": "Opportunistic", "num_steps": 8, "record_digests": True, **keys}
    file = directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**content, "simulation": {"workload": WORKLOAD, "timings": TIMINGS}}))
    return main(["simulate", str(file), "--output_dir", str(directory / name), *options])


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]


def digests(run: Path) -> dict[int, str]:
    return {row["version"]: row["parameters"] for row in rows(run) if row["event"] == "stepped"}


@pytest.mark.parametrize("staleness", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("cut", [2, 5])
def test_a_pinned_run_that_is_resumed_ends_with_the_same_hash(tmp_path: Path, staleness: float, cut: int) -> None:
    keys = {"consumption": "pinned", "staleness": staleness}
    assert simulate(tmp_path, "whole", **keys) == 0
    assert simulate(tmp_path, "first", "--checkpoint_every", "1", "--num_steps", str(cut), **keys) == 0
    assert simulate(tmp_path, "second", "--resume", str(tmp_path / "first"), **keys) == 0
    whole, second = digests(tmp_path / "whole"), digests(tmp_path / "second")
    assert list(second) == list(range(cut + 1, 9))
    assert second == {version: whole[version] for version in second}


def test_no_group_is_lost_or_consumed_twice_over_a_resume(tmp_path: Path) -> None:
    assert simulate(tmp_path, "long", "--checkpoint_every", "3", staleness=2.0) == 0
    newest, _ = latest_checkpoint(tmp_path / "long" / "checkpoints")
    assert newest.name == "step-00000006"
    assert simulate(tmp_path, "again", "--resume", str(tmp_path / "long"), staleness=2.0) == 0
    before = [row for row in rows(tmp_path / "long") if row["event"] == "consumed" and row["step"] < 6]
    after = [row for row in rows(tmp_path / "again") if row["event"] == "consumed"]
    consumed = [row["group_id"] for row in (*before, *after)]
    assert len(set(consumed)) == len(consumed) == 8 * 8
    issued = [row["group_id"] for row in rows(tmp_path / "again") if row["event"] == "issued"]
    assert len(set(issued)) == len(issued)
    state = json.loads((newest / "state.json").read_text())
    assert all(group_id >= state["next_group_id"] for group_id in issued)
    summary = json.loads((tmp_path / "again" / "summary.json").read_text())["groups"]
    assert summary["issued"] == summary["consumed"] + summary["dropped"] + summary["in_flight"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs")
    assert simulate(directory, "run", "--checkpoint_every", "2") == 0
    return directory / "run"


def test_a_changed_config_is_refused_unless_allowed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--resume", str(run), "--num_steps", "9")
    assert simulate(run.parent, "other", *options, group_size=4, max_tokens_per_chunk=64) == 2
    assert "max_tokens_per_chunk differs" in capsys.readouterr().err
    assert (
        simulate(run.parent, "other", *options, "--resume_allow", "max_tokens_per_chunk", max_tokens_per_chunk=64) == 0
    )


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_torn_checkpoint_is_found_and_the_one_before_is_used(run: Path, data: st.DataObject) -> None:
    previous, newest = sorted((run / "checkpoints").glob("step-*"))
    assert find_fault(newest) is None
    file = data.draw(st.sampled_from(sorted(newest.iterdir())))
    content = file.read_bytes()
    end = data.draw(st.integers(0, len(content) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "remove"]))
    if kind == "remove":
        file.unlink()
    else:
        flipped = content[:end] + bytes([content[end] ^ 0x10]) + content[end + 1 :]
        file.write_bytes(content[:end] if kind == "cut" else flipped)
    try:
        found, torn = latest_checkpoint(run / "checkpoints")
        # A flipped bit of the manifest may leave it true: the version in it is not what is read.
        assert found == previous or (file.name == "manifest.json" and kind == "flip")
        assert len(torn) == (found == previous)
    finally:
        file.write_bytes(content)


@pytest.fixture
def lose_learner(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Lets the first ``times`` clusters lose a primary trainer in the optimizer step of that number."""
    build = worlds.simulated_cluster

    def arm(times: int, number: int) -> None:
        left = iter(range(times))

        def faulty(config: Config) -> Cluster:
            cluster = build(config)
            if next(left, None) is not None:
                cluster._faults = ScriptedFaults([("optimizer_step", "", number, 0.0)])  # type: ignore[attr-defined]
            return cluster

        monkeypatch.setattr(worlds, "simulated_cluster", faulty)

    return arm


PINNED = {"consumption": "pinned", "checkpoint_every": 2}


def test_a_run_that_loses_its_learner_goes_on_by_itself(
    tmp_path: Path, lose_learner: Callable[[int, int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(tmp_path, "whole", **PINNED) == 0
    lose_learner(2, 3)
    assert simulate(tmp_path, "run", **PINNED) == 0
    assert "goes on from step-00000002 in " in capsys.readouterr().err
    whole = digests(tmp_path / "whole")
    # Three steps each, from versions 0 and 2; the third attempt begins at 4 and ends.
    for name, versions in (("run", range(1, 4)), ("run-2", range(3, 6)), ("run-3", range(5, 9))):
        assert digests(tmp_path / name) == {version: whole[version] for version in versions}


@pytest.mark.parametrize(("number", "keys"), [(1, {}), (3, {"auto_resume": False}), (3, {"checkpoint_every": 0})])
def test_it_ends_without_a_new_checkpoint_or_when_told_to(
    tmp_path: Path, lose_learner: Callable[[int, int], None], number: int, keys: dict[str, Any]
) -> None:
    lose_learner(1, number)
    assert simulate(tmp_path, "run", **{**PINNED, **keys}) == 1
    assert not (tmp_path / "run-2").exists()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["error"].startswith("LearnerLost")


def test_nothing_to_resume_from_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint is there"):
        latest_checkpoint(tmp_path)
    assert simulate(tmp_path, "x", "--resume", str(tmp_path / "nowhere")) == 2
