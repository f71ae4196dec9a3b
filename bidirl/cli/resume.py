"""Going on from a checkpoint: ``--resume RUN``, and by itself after the loss of a primary trainer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bidirl.cli.config import Config
from bidirl.cli.options import take
from bidirl.cli.parsing import Parsed, parse_config
from bidirl.core.errors import ConfigError, LearnerLost

FREE = (
    "name",
    "output_dir",
    "tracking",
    "wandb_project",
    "num_steps",
    "watchdog_seconds",
    "max_worker_restarts",
    "checkpoint_every",
    "auto_resume",
    "record_digests",
)
"""Keys that may differ between a run and the one that goes on from it."""


def find_resume(run: Path, resolved_yaml: str, allowed: Sequence[str] = ()) -> Path:
    """The checkpoint of ``run`` to go on from; torn ones are named and skipped.

    Raises:
        ConfigError: if there is none, or if the config differs in a key that is neither free nor ``allowed``.
    """
    from bidirl.runtime.outputs.checkpoints import latest_checkpoint

    old, new = _read(run / "config.yaml"), yaml.safe_load(resolved_yaml)
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    refused = [key for key in changed if key not in FREE and key not in allowed]
    if refused:
        raise ConfigError(
            f"--resume: {', '.join(refused)} differs from the config of {run}: set it back, or allow it with "
            f"--resume_allow {','.join(refused)}"
        )
    path, torn = latest_checkpoint(run / "checkpoints")
    for line in torn:
        print(f"bidirl: {line}")
    return path


def run_resuming(
    file: Path, options: Sequence[str], world: str, arguments: list[str], resume_from: Path | None
) -> tuple[Config, Mapping[str, Any]]:
    """Run the job; while ``auto_resume`` holds, go on after every loss of the learner that left a new checkpoint.

    Returns the config of the attempt that ended well, and its summary.

    Raises:
        BidirlError: that of the last attempt.
    """
    from bidirl.cli import worlds

    parsed = _parsed(file, options, world)
    base, attempt = worlds.run_directory(parsed.value), 1
    while True:
        config = parsed.value
        try:
            return config, worlds.run(config, world, parsed.resolved_yaml, arguments, resume_from=resume_from)
        except LearnerLost as error:
            found = _left_checkpoint(config, worlds.run_directory(config))
            if found is None:
                raise
            attempt += 1
            while (directory := base.with_name(f"{base.name}-{attempt}")).exists():
                attempt += 1
            print(f"bidirl: LearnerLost: {error}; goes on from {found.name} in {directory}", file=sys.stderr)
        resume_from = found
        # Parsed anew: the stage models of the lost attempt have learned.
        _, rest = take(options, "output_dir")
        parsed = _parsed(file, [*rest, "--output_dir", str(directory)], world)


def _parsed(file: Path, options: Sequence[str], world: str) -> Parsed[Config]:
    return parse_config(Config, file, list(options), unbuilt=Config.UNBUILT[world])


def _left_checkpoint(config: Config, directory: Path) -> Path | None:
    if not (config.auto_resume and config.checkpoint_every):
        return None
    from bidirl.runtime.outputs.checkpoints import latest_checkpoint

    try:
        return latest_checkpoint(directory / "checkpoints")[0]
    except ConfigError:
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"--resume: {path} cannot be read: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"--resume: {path} is no config of a run")
    return content
