"""How one ``train_chunks`` call spreads over the replicas of a side."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace

from bidirl.core.chunks import Chunk
from bidirl.models.sim_timings import SimTimings


def deal(timings: SimTimings, chunks: Sequence[Chunk], num_workers: int) -> list[int]:
    """Worker index of each chunk: in chunk order, to the worker with the least so far (the first of equals).

    Decided before anything runs, so it counts what chunks should take, not what noise makes of them.
    """
    loads = [(0.0, index) for index in range(num_workers)]
    owners = []
    for chunk in chunks:
        load, index = loads[0]
        owners.append(index)
        heapreplace(loads, (load + timings.chunk_seconds(chunk.sub_stage, chunk.num_tokens), index))
    return owners
