"""``--resume RUN``: find what to go on from, and refuse a config that would make it another run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bidirl.core.errors import ConfigError

FREE = (
    "name",
    "output_dir",
    "tracking",
    "wandb_project",
    "num_steps",
    "watchdog_seconds",
    "max_worker_restarts",
    "checkpoint_every",
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


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"--resume: {path} cannot be read: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"--resume: {path} is no config of a run")
    return content
