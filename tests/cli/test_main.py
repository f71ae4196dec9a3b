from pathlib import Path

import pytest
import yaml

from bidirl.cli.main import main
from tests.cli.test_parsing import BASE, write


def test_dry_run_prints_config_and_layout_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(write(tmp_path, BASE)), "--dry-run"]) == 0
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


def test_interruption_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(given: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("bidirl.cli.main._dispatch", interrupted)
    assert main(["train"]) == 130
