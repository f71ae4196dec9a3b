"""The learner on disk: JSON and safetensors of whole float32 tensors, whatever the ZeRO stage and number of ranks.

``learner.json`` holds the version and AdamW's step count; ``learner-parameters.safetensors`` and the two moments hold
one tensor per parameter; ``weights-00000005.safetensors`` is an older version that rollouters may still have to load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bidirl.core.errors import ConfigError
from bidirl.runtime.ray.weights import WeightLayout, Weights


def write_counts(directory: Path, version: int, adam_steps: int) -> None:
    """``learner.json``."""
    (directory / "learner.json").write_text(json.dumps({"version": version, "adam_steps": adam_steps}), "utf-8")


def read_counts(directory: Path) -> tuple[int, int]:
    """Version and AdamW's steps.

    Raises:
        ConfigError: if the file is not of that form.
    """
    with _named(directory):
        counts = json.loads((directory / "learner.json").read_text(encoding="utf-8"))
        version, adam_steps = counts["version"], counts["adam_steps"]
        if type(version) is not int or type(adam_steps) is not int:
            raise TypeError
        return version, adam_steps


def write_part(directory: Path, part: str, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """One array per parameter."""
    save_file(dict(arrays), directory / f"learner-{part}.safetensors")


def read_part(directory: Path, part: str, layout: WeightLayout) -> dict[str, NDArray[np.float32]]:
    """What :func:`write_part` wrote.

    Raises:
        ConfigError: if it is not readable, or belongs to another model.
    """
    with _named(directory):
        arrays = load_file(directory / f"learner-{part}.safetensors")
    found = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    for name, shape in layout.shapes.items():
        if found.get(name) != (tuple(shape), "float32"):
            raise ConfigError(f"{directory}: the {part} of {name} do not fit ray.model (resume with the same model)")
    return arrays


def write_weights(directory: Path, weights: Weights) -> None:
    """An exported version."""
    save_file(
        {"data": weights.data, "probe_logprobs": weights.probe_logprobs}, _weights_file(directory, weights.version)
    )


def read_weights(directory: Path, version: int, layout: WeightLayout) -> Weights:
    """What :func:`write_weights` wrote.

    Raises:
        ConfigError: if it is not readable, or belongs to another model.
    """
    with _named(directory):
        arrays = load_file(_weights_file(directory, version))
        weights = Weights(version, layout, arrays["data"], arrays["probe_logprobs"])
        if weights.data.shape != (layout.num_bytes,) or weights.data.dtype != np.uint8:
            raise ConfigError(f"{directory}: the weights of version {version} do not fit ray.model")
        return weights


def _weights_file(directory: Path, version: int) -> Path:
    return directory / f"weights-{version:08d}.safetensors"


@contextmanager
def _named(directory: Path) -> Iterator[None]:
    try:
        yield
    except ConfigError:
        raise
    except (OSError, ValueError, TypeError, KeyError, RecursionError, SafetensorError) as error:
        raise ConfigError(f"{directory} holds no learner of a real run ({type(error).__name__}: {error})") from None
