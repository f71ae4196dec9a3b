"""The same metrics in Weights & Biases: on the version axis, offline where no key is set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any

import yaml

from bidirl.core.errors import ConfigError
from bidirl.core.records import Recorder, Row
from bidirl.runtime.outputs.jsonl import plain


def has_key() -> bool:
    """Whether W&B could log in without asking: a key in the environment or a stored login."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    path = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        return path.is_file() and any("wandb" in host for host in netrc(str(path)).hosts)
    except (OSError, NetrcParseError):
        return False


def require_wandb() -> Any:
    """The wandb module.

    Raises:
        ConfigError: if it is not installed.
    """
    try:
        import wandb
    except ImportError:
        raise ConfigError(
            "tracking: wandb is not installed: pip install 'bidirl[tracking]' or use --tracking files"
        ) from None
    return wandb


class WandbRecorder(Recorder):
    """One W&B run. Rows are given explicitly per version, so none is dropped for coming late."""

    def __init__(self, directory: Path, project: str, name: str, world: str, config_yaml: str) -> None:
        wandb = require_wandb()
        mode = os.environ.get("WANDB_MODE") or ("online" if has_key() else "offline")
        self._run = wandb.init(
            project=project,
            name=name,
            dir=str(directory),
            mode=mode,
            tags=["simulated" if world == "sim" else "real"],
            config=yaml.safe_load(config_yaml) or {},
            settings=wandb.Settings(silent=True),
        )
        self._run.define_metric("version")
        self._run.define_metric("*", step_metric="version")

    def step(self, row: Mapping[str, float]) -> None:
        """One row on the version axis."""
        self._run.log({key: value for key, value in plain(row).items() if value is not None})

    def close(self, summary: Row) -> None:
        """The summary, flattened, and the state of the run."""
        self._run.summary.update(dict(_flat("summary", plain(summary))))
        self._run.finish(exit_code=1 if summary.get("error") else 0)


def _flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [pair for key, child in value.items() for pair in _flat(f"{prefix}/{key}", child)]
    return [] if value is None or isinstance(value, list) else [(prefix, value)]
