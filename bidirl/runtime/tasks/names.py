"""Errors about names, and objects by import path."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from bidirl.core.errors import ConfigError


def unknown_name(key: str, name: str, known: Iterable[str]) -> ConfigError:
    """One line that names the nearest known names, or says how many there are."""
    known = sorted(known)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known[:12])}, …"
    return ConfigError(f"{key}: {name!r} is not known; {hint}")


def import_function(key: str, path: str) -> Callable[..., Any]:
    """The callable at ``package.module.function``.

    Raises:
        ConfigError: naming the key, if the module or the function does not exist.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ConfigError(f"{key}: {path!r} is not an import path; write package.module.function")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"{key}: cannot import {module_name}: {error}; check the path and PYTHONPATH") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise unknown_name(key, name, (n for n in dir(module) if not n.startswith("_")))
    return function
