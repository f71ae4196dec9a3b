from pathlib import Path

import pytest
import yaml

from bidirl.cli.main import main
from tests.cli.test_parsing import BASE, sim, write


def test_dry_run_prints_config_and_layout_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(write(tmp_path, sim())), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert yaml.safe_load(out)["policy"]["class_path"].endswith("NoBorrow")
    assert "rollouter@trainpool:0: auxiliary on device 1" in out


@pytest.mark.parametrize(
    "arguments",
    [[], ["trian"], ["train"], ["train", "none.yaml"], ["simulate"], ["compare"], ["timeline"], ["compare", "nowhere"]],
)
def test_wrong_use_is_status_2_and_at_most_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") <= 1
    assert "Traceback" not in captured.err


def test_config_errors_are_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(write(tmp_path, BASE)), "--polcy", "x"]) == 2
    assert capsys.readouterr().err == "bidirl: unknown key 'polcy': did you mean 'policy'?\n"


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "bidirl" in capsys.readouterr().out


TIMINGS = {
    "rollout": {"step_seconds": 0.1},
    "actor_update": {"base_seconds": 0.5},
    "rollouter_on_trainpool": {"in_seconds": 0.1, "out_seconds": 0.1},
    "trainer_on_rollpool": {"in_seconds": 0.1, "out_seconds": 0.1, "grad_seconds": 0.1},
}


def test_simulate_leaves_a_whole_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    config = str(write(tmp_path, {**sim(timings=TIMINGS), "policy": "Opportunistic", "output_dir": str(run)}))
    assert main(["simulate", config, "--num_steps", "6"]) == 0
    names = ("config.yaml", "provenance.json", "metrics.jsonl", "decisions.jsonl", "ledger.jsonl", "leases.jsonl")
    assert all((run / name).stat().st_size > 0 for name in (*names, "trace.json", "summary.json"))
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 6
    assert main(["compare", str(run), str(run)]) == 0
    assert "simulated" in capsys.readouterr().out
    assert main(["timeline", str(run)]) == 0
    assert (run / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert main(["simulate", config]) == 2
    assert "is not overwritten" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    config = str(write(tmp_path, {**sim(timings=TIMINGS), "policy": "ModelGuided", "num_steps": 6}))
    for name in ("a", "b"):
        assert main(["simulate", config, "--output_dir", str(tmp_path / name)]) == 0
    for name in ("metrics.jsonl", "decisions.jsonl", "ledger.jsonl", "leases.jsonl", "trace.json", "summary.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_a_world_without_its_section_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(write(tmp_path, BASE))
    assert main(["simulate", config]) == 2
    assert main(["train", config]) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith("bidirl: simulation.workload must be given")
    assert err[1].startswith("bidirl: task must be given")


def test_interruption_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(given: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("bidirl.cli.main._dispatch", interrupted)
    assert main(["train"]) == 130
