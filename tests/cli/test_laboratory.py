"""plan, ablate, replay and check, through the command."""

import csv
import dataclasses
import json
import re
from pathlib import Path

import pytest

from bidirl.cli.ablate import parse_cell
from bidirl.cli.main import main
from bidirl.cli.plan import PlanOptions, batch_work, plan_job, stage_models
from bidirl.cli.replay import replay
from bidirl.core.opportunity import Opportunity

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
A6000 = EXPERIMENTS / "a6000.yaml"
SMALL = ["--num_steps=5", "--groups_per_batch=16", "--simulation.model=qwen3-vl-2b"]


@pytest.mark.parametrize("file", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda f: f.stem)
def test_every_simulated_config_parses(file: Path) -> None:
    if "simulation:" in file.read_text():
        assert main(["simulate", str(file), "--dry-run"]) == 0


def test_plan_prints_the_choice_the_ranking_and_every_exclusion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(A6000), "--output_dir", str(tmp_path)]) == 0
    assert "chosen: rollpool" in capsys.readouterr().out
    ranked = list(csv.reader((tmp_path / "plan_ranking.csv").open()))[1:]
    excluded = list(csv.reader((tmp_path / "plan_excluded.csv").open()))[1:]
    assert len(ranked) + len(excluded) == 15
    assert all("not divisible by" in reason for _, reason in excluded)


def test_the_plan_predicts_with_the_models_of_the_simulation() -> None:
    config = parse_cell(A6000, (), "", 0)
    best = plan_job(config, PlanOptions()).chosen
    models = stage_models(config.simulation.resolved_timings(config.envelope.topology()))
    rollout, trainer = batch_work(config)
    assert best.rollout_seconds == models[0].predict(rollout, best.rollpool_devices)
    assert best.train_seconds == models[1].predict(trainer, best.trainpool_devices // 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--num_devices", "2"], "use at least 4 devices; layouts follow from memory"),
        (["--num_devices", "12", "--whole_nodes", "true"], "use at least 16 devices"),
        (["--trainer_layout_devices", "1"], "memory is"),
        (["--num_devices", "x"], "num_devices"),
        (["--num_device", "4"], "num_device"),
    ],
)
def test_an_infeasible_plan_says_what_fails_and_what_works(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(A6000), *options]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_ablate_adds_the_users_policy_as_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--policy", "tests.cli.plugins.First", "--seeds", "2", "--output_dir", str(tmp_path)]
    assert main(["ablate", str(EXPERIMENTS / "ablation.yaml"), *own, *SMALL]) == 0
    assert "simulated" in capsys.readouterr().out
    rows = list(csv.reader((tmp_path / "ablation.csv").open()))
    assert [row[0] for row in rows[1:]] == [
        "NoBorrow", "RolloutOnly", "TrainOnly", "Opportunistic", "ModelGuided", "PricedModelGuided", "First",
    ]  # fmt: skip
    assert rows[-1][1:] == rows[1][1:]  # a policy that always refuses is no borrowing
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".md", ".tex", ".png"}


@pytest.mark.parametrize("options", [[], ["--seeds", "1"], ["--seeds", "many"], ["--policy"], ["--policy", "Nope"]])
def test_wrong_use_of_ablate(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    file = [str(A6000)] if options else []
    assert main(["ablate", *file, *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def recorded(directory: Path, policy: str, rollpool_devices: int = 2) -> Path:
    """A simulated run under ``policy``."""
    pools = f"rollpool_devices: {rollpool_devices}, trainpool_devices: {16 - rollpool_devices}"
    split = "{class_path: FixedEnvelope, init_args: {" + pools + "}}"
    options = ["--policy", policy, "--envelope", split, "--output_dir", str(directory)]
    assert main(["simulate", str(A6000), *options, *SMALL]) == 0
    return directory


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("runs") / "run", "ModelGuided")


def test_a_log_holds_everything_that_a_policy_can_read(run: Path) -> None:
    row = json.loads((run / "decisions.jsonl").read_text().splitlines()[0])
    unnamed = {"now_seconds"}  # under "seconds"
    assert {field.name for field in dataclasses.fields(Opportunity)} - unnamed <= row.keys()


@pytest.mark.parametrize("rollpool_devices", [2, 14])
def test_a_log_of_our_own_policy_replays_too(tmp_path: Path, rollpool_devices: int) -> None:
    assert all(entry.agrees for entry in replay(recorded(tmp_path / "run", "PricedModelGuided", rollpool_devices), ()))


def test_a_log_replayed_through_its_own_policy_gives_the_same_decisions(run: Path) -> None:
    replayed = replay(run, ())
    assert replayed
    for entry in replayed:
        assert entry.agrees
        assert entry.decision.reason == entry.row["reason"]
        assert entry.row["benefit_seconds"] in (None, pytest.approx(entry.decision.benefit_seconds, rel=1e-12))


def test_replay_of_another_policy_counts_differences(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(run), "--policy", "Opportunistic", "--output_dir", str(tmp_path)]) == 0
    assert "only replayed admits" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "replay_agreement.csv").open()))
    refused = sum(not json.loads(line)["admit"] for line in (run / "decisions.jsonl").read_text().splitlines())
    assert sum(int(row["only replayed admits"]) for row in rows) == refused


def copy(run: Path, target: Path, log: str) -> Path:
    target.mkdir()
    (target / "config.yaml").write_text((run / "config.yaml").read_text())
    (target / "decisions.jsonl").write_text(log)
    return target


def test_a_log_that_is_cut_off_is_read_up_to_the_cut(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = (run / "decisions.jsonl").read_text()
    cut = copy(run, tmp_path / "cut", log[:-20])
    assert len(replay(cut, ())) == log.count("\n") - 1
    assert "cut off in the middle" in capsys.readouterr().err


@pytest.mark.parametrize("schema", [None, 0, 99])
def test_a_log_of_another_schema_is_refused(
    run: Path, tmp_path: Path, schema: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    row = json.loads((run / "decisions.jsonl").read_text().splitlines()[0])
    other = copy(run, tmp_path / "other", json.dumps({**row, "schema": schema}) + "\n")
    assert main(["replay", str(other)]) == 2
    assert "schema version" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none")]) == 2


def test_check_names_the_line_to_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "tests.cli.plugins.First"]) == 0
    assert main(["check", "CapacitySplit"]) == 0
    assert main(["check", "CalibratedRolloutModel"]) == 0
    assert main(["check", "FixedEnvelope", "--rollpool_devices", "2", "--trainpool_devices", "2"]) == 0
    assert "keeps the contract of AdmissionPolicy" in capsys.readouterr().out
    assert main(["check", "tests.cli.plugins.Open"]) == 1
    assert re.search(r"plugins\.py:\d+: Open\.__init__ takes \*\*kwargs", capsys.readouterr().err)


@pytest.mark.parametrize("name", ["Nope", "tests.cli.plugins.Nope", "no_module.X", "tests.cli.plugins.NotAPolicy", ""])
def test_check_of_what_is_no_class_of_ours(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *([name] if name else [])]) == 2
    assert capsys.readouterr().err.count("\n") == 1
