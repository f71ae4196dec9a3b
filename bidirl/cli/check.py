"""``bidirl check``: whether a class of the user's keeps the contract of its interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bidirl import testing
from bidirl.cli.config import SHIPPED
from bidirl.cli.parsing import parse_config
from bidirl.core.errors import ConfigError
from bidirl.core.interfaces import AdmissionPolicy, Envelope, Splitter, StageModel

USAGE = "bidirl check my_package.MyPolicy [--argument value …]"


@dataclass(frozen=True, kw_only=True)
class _Policy:
    subject: AdmissionPolicy


@dataclass(frozen=True, kw_only=True)
class _Splitter:
    subject: Splitter


@dataclass(frozen=True, kw_only=True)
class _Model:
    subject: StageModel  # type: ignore[type-arg]


@dataclass(frozen=True, kw_only=True)
class _Envelope:
    subject: Envelope


CHECKS: tuple[tuple[type, type, Callable[[Any], None]], ...] = (
    (AdmissionPolicy, _Policy, testing.check_policy),
    (Splitter, _Splitter, testing.check_splitter),
    (StageModel, _Model, testing.check_stage_model),
    (Envelope, _Envelope, testing.check_envelope),
)


def main(options: list[str]) -> int:
    """Check one class; every fault is a line that begins with ``file:line``. Returns the exit status."""
    if not options or options[0].startswith("--"):
        raise ConfigError(f"the class to check is missing: {USAGE}")
    cls = find_class(options[0])
    for interface, holder, check in CHECKS:
        if issubclass(cls, interface):
            check(_build(cls, holder, options[1:]))
            print(f"{cls.__module__}.{cls.__qualname__} keeps the contract of {interface.__name__}")
            return 0
    names = ", ".join(interface.__name__ for interface, _, _ in CHECKS)
    raise ConfigError(f"{options[0]} is none of {names}: subclass one of them (bidirl.core.interfaces)")


def find_class(name: str) -> type:
    """A class by its import path, or by its name alone where bidirl ships it.

    Raises:
        ConfigError: what does not exist.
    """
    module, _, leaf = name.rpartition(".")
    if not module:
        found = next((getattr(m, leaf) for m in SHIPPED if inspect.isclass(getattr(m, leaf, None))), None)
        if found is None:
            raise ConfigError(
                f"bidirl ships no class {name!r}: give the import path of your own, for example my_file.{name}"
            )
        return found  # type: ignore[no-any-return]
    try:
        found = getattr(import_module(module), leaf, None)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{name}: there is no module {error.name!r} (looked in the current directory as well)"
        ) from None
    if not inspect.isclass(found):
        raise ConfigError(f"{name}: module {module} has no class {leaf!r}")
    return found


def _build(cls: type, holder: type[Any], arguments: list[str]) -> Any:
    """An instance; with its defaults where it has them all, else from ``--argument value``."""
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))  # type: ignore[attr-defined]
        raise ConfigError(f"{cls.__qualname__} is abstract: define {missing}")
    if not arguments:
        try:
            return cls()
        except TypeError as error:
            if "argument" not in str(error):
                raise
    path = f"{cls.__module__}.{cls.__qualname__}"
    given = [a.replace("--", "--subject.init_args.", 1) if a.startswith("--") else a for a in arguments]
    return parse_config(holder, None, [f"--subject={path}", *given]).value.subject
