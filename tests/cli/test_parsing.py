from pathlib import Path
from typing import Any

import pytest
import yaml

from bidirl.cli.config import Config
from bidirl.cli.parsing import describe, known_keys, parse_config
from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError

BASE: dict[str, Any] = {
    "name": "job",
    "policy": "NoBorrow",
    "envelope": {"class_path": "FixedEnvelope", "init_args": {"rollpool_devices": 1, "trainpool_devices": 1}},
}
UNBUILT = ("task", "ray", "simulation")
OWN = "tests.cli.plugins"


def parse(tmp_path: Path, content: Any, *options: str) -> Config:
    worlds = ("task", "ray") if "simulation" in content else UNBUILT
    return parse_config(Config, write(tmp_path, content), options, worlds).value


def write(tmp_path: Path, content: Any) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def own(name: str, **arguments: Any) -> dict[str, Any]:
    return {**BASE, "policy": {"class_path": f"{OWN}.{name}", "init_args": arguments}}


def sim(**section: Any) -> dict[str, Any]:
    lengths = {"group_size": 4, "response_tokens": 8, "prompt_tokens": 4}
    workload = {"class_path": "ConstantWorkload", "init_args": lengths}
    return {**BASE, "simulation": {"workload": workload, **section}}


def test_a_minimal_file_gives_a_whole_config(tmp_path: Path) -> None:
    config = parse(tmp_path, BASE)
    assert type(config.policy).__name__ == "NoBorrow"
    assert type(config.splitter).__name__ == "CapacitySplit"
    assert config.job().sub_stages == (SubStage.ACTOR_UPDATE,)


def test_sub_stages_follow_from_learning(tmp_path: Path) -> None:
    config = parse(tmp_path, {**BASE, "learning": {"kl_coefficient": 1e-3}})
    assert config.job().sub_stages == (SubStage.REF_LOGPROB, SubStage.ACTOR_UPDATE)


def test_the_command_line_sets_arguments_of_a_users_class(tmp_path: Path) -> None:
    config = parse(tmp_path, own("First", margin_seconds=3), "--policy.margin_seconds", "4", "--staleness=0.5")
    assert config.policy.margin_seconds == 4.0  # type: ignore[attr-defined]
    assert config.staleness == 0.5


def test_order_of_options_does_not_matter(tmp_path: Path) -> None:
    config = parse(tmp_path, BASE, "--policy.other", "7", "--policy", f"{OWN}.Second")
    assert config.policy.other == 7  # type: ignore[attr-defined]


def test_required_keys_may_come_from_the_command_line(tmp_path: Path) -> None:
    assert parse(tmp_path, {k: v for k, v in BASE.items() if k != "name"}, "--name", "x").name == "x"


def test_switching_the_class_does_not_carry_defaults_of_the_old_one(tmp_path: Path) -> None:
    config = parse(tmp_path, {**BASE, "policy": f"{OWN}.First"}, "--policy", f"{OWN}.Second")
    assert config.policy.margin_seconds == 2.5  # type: ignore[attr-defined]


def test_switching_the_class_over_arguments_of_the_old_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"would inherit margin_seconds .* replace the whole object"):
        parse(tmp_path, own("First", margin_seconds=3), "--policy", f"{OWN}.Second")


def test_a_full_object_replaces_the_old_one(tmp_path: Path) -> None:
    new = f"{{class_path: {OWN}.Second, init_args: {{other: 4}}}}"
    policy: Any = parse(tmp_path, own("First", margin_seconds=3), "--policy", new).policy
    assert (policy.margin_seconds, policy.other) == (2.5, 4)


def test_a_resolved_config_gives_itself_again(tmp_path: Path) -> None:
    first = parse_config(Config, write(tmp_path, own("Second", other=9)), ["--num_steps", "3"], UNBUILT)
    second = parse_config(Config, write(tmp_path, first.resolved_yaml), (), UNBUILT)
    assert second.resolved_yaml == first.resolved_yaml
    assert "Unable" not in first.resolved_yaml


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ({**BASE, "nam": 1}, (), "unknown key 'nam': did you mean 'name'?"),
        (BASE, ("--stalness", "1"), "unknown key 'stalness': did you mean 'staleness'?"),
        ({**BASE, "learning": {"clip_lo": 1}}, (), "unknown key 'learning.clip_lo': did you mean 'learning.clip_low'?"),
        (BASE, ("--learning.clip_lo", "1"), "unknown key 'learning.clip_lo': did you mean 'learning.clip_low'?"),
        (BASE, ("--stale", "1"), "unknown key 'stale'"),
        ({**BASE, "policy": "ModelGuide"}, (), "policy: there is no class 'ModelGuide': did you mean 'ModelGuided'?"),
        (own("Missing"), (), f"policy: module '{OWN}' has no attribute 'Missing'"),
        (own("NotAPolicy"), (), f"policy: {OWN}.NotAPolicy is not a subclass of AdmissionPolicy; available:"),
        ({**BASE, "policy": "bidirl.core.interfaces.AdmissionPolicy"}, (), "is abstract"),
        (own("Open"), (), "takes **kwargs, so its arguments cannot be checked"),
        (own("Bare"), (), "has arguments without a type: annotate margin_seconds"),
        (own("First", margin=1), (), "policy: First has no argument 'margin': did you mean 'margin_seconds'?"),
        (own("First", margin_seconds="x"), (), "policy: margin_seconds: expected float, got x"),
        (BASE, ("--policy.x", "1"), "policy: NoBorrow takes no arguments, so 'x' cannot be set"),
        ({**BASE, "num_steps": 1.5}, (), "num_steps: expected int, got 1.5"),
        ({**BASE, "num_steps": True}, (), "num_steps: expected int, got True"),
        ({**BASE, "consumption": "any"}, (), "consumption: expected one of ['first_ready', 'pinned'], got any"),
        ({**BASE, "staleness": -1}, (), "staleness is -1"),
        ({**BASE, "learning": {"clip_low": 2}}, (), "clip_low: 2"),
        ({"name": "x"}, (), "must be given"),
        (sim(timings={"rollout": {"step": 1}}), (), "timings.rollout.step does not exist: use one of prefill_seconds"),
        (sim(), ("--simulation.max_num_seqs", "x"), "simulation.max_num_seqs: expected int, got x"),
        (sim(), ("--group_size", "2"), "simulation.workload.group_size is 4, but group_size is 2"),
        (BASE, ("--name",), "--name has no value"),
        (BASE, ("--name", "a", "--name", "b"), "--name is given twice"),
        (BASE, ("stray",), "unexpected argument 'stray'"),
        ("name: a\nname: b\n", (), "key 'name' is given twice"),
        ("- 3\n", (), "not keys and values"),
        ("name: [x\n", (), "is not valid YAML"),
        (
            BASE,
            ("--envelope.rollpool_devices", "3", "--envelope.rollouter_layout_devices", "2"),
            "rollpool_devices is 3",
        ),
    ],
)
def test_errors_are_one_line_that_names_key_and_fix(
    tmp_path: Path, content: Any, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(tmp_path, content, *options)
    text = str(caught.value)
    assert message in text
    assert "\n" not in text


def test_sections_of_the_other_world_are_checked_but_not_built(tmp_path: Path) -> None:
    content = {
        **sim(),
        "ray": {"model": "nowhere"},
        "task": {"class_path": "ReasoningGymTask", "init_args": {"dataset": "x"}},
    }
    config = parse(tmp_path, content, "--ray.max_model_len", "128")
    assert config.ray is None
    with pytest.raises(ConfigError, match=r"ray.max_model_len: expected int, got x"):
        parse(tmp_path, content, "--ray.max_model_len", "x")


def test_options_replace_single_keys_of_a_section(tmp_path: Path) -> None:
    config = parse(tmp_path, sim(kv_tokens=7), "--simulation.max_num_seqs", "3", "--simulation.workload.seed", "5")
    assert (config.simulation.max_num_seqs, config.simulation.kv_tokens) == (3, 7)
    assert config.simulation.workload.group_size == 4


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, BASE)
    with pytest.raises(ConfigError, match=r"does not exist: did you mean 'job.yaml'"):
        parse_config(Config, tmp_path / "jobb.yaml")


def test_help_lists_every_key() -> None:
    text = describe(Config)
    assert all(f"--{key}" in text for key in known_keys(Config))
