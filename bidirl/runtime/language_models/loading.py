"""Opening a causal language model and its tokenizer, from a directory or a Hugging Face name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bidirl.core.errors import ConfigError

DTYPES = ("float32", "bfloat16", "float16")

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def check_model_path(path: str, key: str = "model.path") -> str:
    """Refuse early what is neither a model directory nor a name on the Hub.

    Args:
        path: what the user gave.
        key: the setting to name in the error.

    Returns:
        ``path`` with ``~`` expanded.

    Raises:
        ConfigError: naming the key and the fix.
    """
    expanded = Path(path).expanduser()
    if expanded.is_dir():
        if not (expanded / "config.json").is_file():
            raise ConfigError(f"{key}: {path} has no config.json, so it is no model directory; give one that has")
        return str(expanded)
    if expanded.is_file():
        hint = " (convert it with `bidirl model import`)" if expanded.suffix in (".gguf", ".whl") else ""
        raise ConfigError(f"{key}: {path} is a file; give the directory of a Hugging Face model{hint}")
    if path.startswith((".", "/", "~")) or not _HUB_NAME.fullmatch(path) or _parent_exists(expanded):
        raise ConfigError(f"{key}: {path} does not exist; build it with `bidirl model tiny` or give another path")
    return path


def load_causal_lm(path: str, dtype: str = "float32", key: str = "model.path") -> Any:
    """A causal language model in ``dtype`` on the CPU.

    Raises:
        ConfigError: naming the key, if there is no such model or it cannot be opened.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype: {dtype!r} is not known; use one of {', '.join(DTYPES)}")
    path = check_model_path(path, key)
    import torch  # after the check: a mistyped path is reported at once, not after seconds of importing
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise _cannot_open(key, path, error) from error


def load_tokenizer(path: str, key: str = "model.path") -> Any:
    """The tokenizer of a model; one without a pad token pads with its end-of-sequence token.

    Raises:
        ConfigError: naming the key, if there is none or it has no end-of-sequence token.
    """
    path = check_model_path(path, key)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, KeyError) as error:
        raise _cannot_open(key, path, error) from error
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"{key}: the tokenizer of {path} has no end-of-sequence token; set eos_token in its config")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _parent_exists(path: Path) -> bool:
    """``models/tny`` beside an existing ``models`` is a mistyped directory, not a name on the Hub."""
    return path.parent.is_dir()


def _cannot_open(key: str, path: str, error: Exception) -> ConfigError:
    reason = (str(error) or type(error).__name__).strip().splitlines()[0][:200]
    return ConfigError(f"{key}: {path} cannot be opened: {reason}; give a directory with weights and tokenizer")
