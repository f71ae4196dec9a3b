from pathlib import Path

import pytest
import yaml

from bidirl.cli import neutrality
from bidirl.cli.main import main
from bidirl.cli.neutrality import VersionHashes, first_difference
from tests.cli.test_main import TIMINGS
from tests.cli.test_parsing import BASE


@pytest.fixture
def job(tmp_path: Path) -> Path:
    lengths = {
        "group_size": 4,
        "max_response_tokens": 64,
        "median_response_tokens": 12.0,
        "sigma": 1.0,
        "median_prompt_tokens": 8.0,
    }
    workload = {"class_path": "LognormalWorkload", "init_args": lengths}
    file = tmp_path / "job.yaml"
    content = {**BASE, "num_steps": 12, "max_tokens_per_chunk": 64}
    file.write_text(yaml.safe_dump({**content, "simulation": {"workload": workload, "timings": TIMINGS}}))
    return file


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_simulated_runs_are_identical_with_and_without_borrowing(
    job: Path, staleness: int, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["neutrality", str(job), "--world", "sim", "--num_random", "2", "--staleness", str(staleness)]
    assert main(options) == 0
    assert capsys.readouterr().out.count("identical in all 12 versions") == 2


def test_the_first_difference_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    base = VersionHashes({0: "a", 1: "b"}, {1: "x", 2: "y"})
    assert first_difference(base, VersionHashes({0: "a", 1: "b"}, {1: "x", 2: "y"})) is None
    both = {"rollouter_on_trainpool": 1, "trainer_on_rollpool": 1}
    other = VersionHashes({0: "a", 1: "b"}, {1: "x", 2: "z"}, both)
    assert neutrality.report(["one", "two"], [base, other]) == 1
    assert "parameters of version 2 differ" in capsys.readouterr().out
    assert first_difference(base, VersionHashes({0: "a", 1: "c"}, {1: "x", 2: "y"})) == (
        "the batch that leads to version 2 differs"
    )


def test_equal_without_borrowing_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    base = VersionHashes({0: "a"}, {1: "x"})
    assert neutrality.report(["one", "two"], [base, base]) == 1
    assert "shows nothing" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--world", "moon"], ["--num_random", "0"], ["--world"]])
def test_wrong_options_are_status_2(job: Path, wrong: list[str]) -> None:
    assert main(["neutrality", str(job), *wrong]) == 2
