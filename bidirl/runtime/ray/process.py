"""Environment of a worker process. Called before torch is imported: thread counts are read once."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from pathlib import Path

from bidirl.runtime.ray.config import RayConfig

_TAIL_BYTES = 100_000
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Options of glibc's ``mallopt``."""
_ERROR = re.compile(r"(?:^|[ \]])([A-Za-z_.]*(?:Error|Exception): .+)$", re.MULTILINE)
_CONSEQUENCES = ("vllm.v1.engine.exceptions.EngineDeadError", "EngineDeadError", "RuntimeError: Engine core init")


def enter_worker_process(
    config: RayConfig, devices: Sequence[int], cores: Sequence[int], rendezvous: tuple[int, int, int] | None
) -> None:
    """Bind this process to its device's cores and quieten what it will import.

    Args:
        config: of the job.
        devices: devices of the worker.
        cores: cores of the device; empty on ``cuda``.
        rendezvous: rank, number of ranks and port, for a primary trainer.
    """
    threads = str(max(1, len(cores)))
    os.environ |= {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "NUMEXPR_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "DS_SKIP_CUDA_CHECK": "1",
    }
    if config.accelerator == "cpu":
        os.sched_setaffinity(0, set(cores))
        keep_freed_memory()
        os.environ |= {
            "CUDA_VISIBLE_DEVICES": "",
            "DS_ACCELERATOR": "cpu",
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
            # One process per engine: with a worker process of its own, both sides spin on shared memory, and they
            # share a core here.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            # Nothing here gains from compilation, which takes half a minute on a fresh machine.
            "TORCHDYNAMO_DISABLE": "1",
        }
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
        # vLLM's sleep mode manages memory itself and cannot work on expandable segments.
        os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if rendezvous is not None:
        rank, num_ranks, port = rendezvous
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(num_ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }


def last_error_line() -> str:
    """The newest error that this process or a child of it wrote to its log; empty if there is none.

    vLLM's engine runs in a child process, and its front end reports only that it died.
    """
    found = ""
    for descriptor in (1, 2):
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if not path.is_file():
            continue
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
        errors = [match for match in _ERROR.findall(text) if not match.startswith(_CONSEQUENCES)]
        found = errors[-1].strip() if errors else found
    return found


def keep_freed_memory() -> None:
    """Let glibc's malloc reuse what was freed: by default each large tensor is fresh pages, zeroed by the kernel."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
