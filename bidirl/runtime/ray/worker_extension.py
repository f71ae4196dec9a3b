"""What runs inside vLLM's own worker process, reached by ``collective_rpc``."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from typing import Any

import torch

from bidirl.runtime.ray.process import keep_freed_memory
from bidirl.runtime.ray.weights import WeightLayout

_PR_SET_PDEATHSIG = 1


class WeightReceiver:
    """Mixed into vLLM's worker class (``worker_extension_cls``)."""

    def bidirl_prepare(self, on_cpu: bool) -> int:
        """Tie this process's life to its parent's and, on CPU, set its allocator; returns its process id."""
        if on_cpu:
            keep_freed_memory()
        if hasattr(ctypes, "CDLL") and os.name == "posix":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        return os.getpid()

    def bidirl_load(self, path: str, dtype: str, shapes: dict[str, Any], aliases: dict[str, str]) -> int:
        """Load every parameter from a flat file; returns the number of names loaded."""
        layout = WeightLayout(dtype, {name: tuple(shape) for name, shape in shapes.items()}, aliases)
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        flat = torch.frombuffer(mapped, dtype=torch.uint8)
        tensors = {
            name: flat[start:end].view(getattr(torch, dtype)).view(shape)
            for name, shape, start, end in layout.byte_ranges()
        }
        tensors |= {alias: tensors[name] for alias, name in aliases.items()}
        self.reload_weights(weights_iterator=iter(tensors.items()))  # type: ignore[attr-defined]
        return len(tensors)
