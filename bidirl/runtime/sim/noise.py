"""Multiplicative noise on durations: lognormal with mean 1, from streams keyed by what is timed."""

from __future__ import annotations

from math import exp

import numpy as np

from bidirl.core.topology import Topology, Worker

_ROLLOUT, _CHUNK, _CALL = 16, 17, 18


class Noise:
    """Factors that depend on the seed and the key only, never on the order in which they are asked for."""

    def __init__(self, seed: int, topology: Topology) -> None:
        self._seed = seed
        self._numbers: dict[Worker | None, int] = {worker: i + 1 for i, worker in enumerate(topology.workers)}
        self._numbers[None] = 0
        self._calls: dict[Worker | None, int] = {}

    def _factor(self, sigma: float, *key: int) -> float:
        if not sigma:
            return 1.0
        stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence(self._seed, spawn_key=key)))
        return exp(sigma * stream.standard_normal() - sigma * sigma / 2.0)

    def rollout(self, sigma: float, worker: Worker, version: int) -> float:
        """For one rollouter as long as it serves ``version``."""
        return self._factor(sigma, _ROLLOUT, self._numbers[worker], version)

    def chunk(self, sigma: float, version: int, chunk_id: int) -> float:
        """For one chunk of the step from ``version``, wherever it runs."""
        return self._factor(sigma, _CHUNK, version, chunk_id)

    def call(self, sigma: float, worker: Worker | None) -> float:
        """For the next switch of this worker (``None``: the next merge)."""
        number = self._calls.get(worker, 0)
        self._calls[worker] = number + 1
        return self._factor(sigma, _CALL, self._numbers[worker], number)
