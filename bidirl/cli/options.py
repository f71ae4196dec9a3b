"""Options of a command that takes keys of a job config as well as its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bidirl.core.errors import ConfigError


def take_config_file(options: Sequence[str], usage: str) -> tuple[Path, list[str]]:
    """The config file that comes first, and the rest.

    Raises:
        ConfigError: if there is none.
    """
    if not options or options[0].startswith("--"):
        raise ConfigError(f"a config file is missing: {usage}")
    return Path(options[0]), list(options[1:])


def take(options: Sequence[str], *keys: str) -> tuple[dict[str, list[str]], list[str]]:
    """Values of ``--key value`` and ``--key=value`` for ``keys``, each as often as given, and all other options.

    Raises:
        ConfigError: for a key without a value.
    """
    found: dict[str, list[str]] = {key: [] for key in keys}
    rest: list[str] = []
    pending = list(options)
    while pending:
        option = pending.pop(0)
        key, equals, value = option.removeprefix("--").partition("=")
        if not option.startswith("--") or key not in found:
            rest.append(option)
            if option.startswith("--") and not equals and pending:
                rest.append(pending.pop(0))
            continue
        if not equals:
            if not pending or pending[0].startswith("--"):
                raise ConfigError(f"--{key} has no value: write --{key} value")
            value = pending.pop(0)
        found[key].append(value)
    return found, rest


def last(values: Sequence[str], key: str, default: str) -> str:
    """The one value of a key that may be given once.

    Raises:
        ConfigError: if it is given twice.
    """
    if len(values) > 1:
        raise ConfigError(f"--{key} is given twice")
    return values[0] if values else default


def policy_option(policy: str) -> list[str]:
    """The option that replaces the policy of a config and its arguments; none where ``policy`` is empty."""
    if not policy:
        return []
    return [f"--policy={policy if policy.lstrip().startswith('{') else '{class_path: ' + policy + '}'}"]
