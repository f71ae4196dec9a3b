"""Ray and the actors of a topology: started with a time limit, ended without leftovers."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from bidirl.core.errors import WorkerError
from bidirl.core.topology import Role, Topology, Worker
from bidirl.runtime.learning import GrpoConfig
from bidirl.runtime.ray.actors import RolloutActor, TrainerActor
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.ray.handles import WorkerHandle, descendants, end_processes, gather_or_cancel
from bidirl.runtime.ray.hot_switch import hot_switch

_CLOSE_SECONDS = 5.0


class Fleet:
    """All workers of one cluster, by :class:`Worker`."""

    def __init__(self, topology: Topology, config: RayConfig, grpo: GrpoConfig) -> None:
        self._topology = topology
        self._config = config
        self._grpo = grpo
        self._handles: dict[Worker, WorkerHandle] = {}
        self._running = False
        self._owns_ray = False
        self._processes: list[int] = []
        self._num_restarts = 0
        self._began = time.time()
        self.exclusive = hot_switch(config).exclusive

    def __getitem__(self, worker: Worker) -> WorkerHandle:
        """The handle of a started worker."""
        if worker not in self._handles:
            raise WorkerError(f"{worker.name} is not running")
        return self._handles[worker]

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Processes of all workers."""
        return tuple(pid for handle in self._handles.values() for pid in handle.process_ids)

    async def start(self) -> None:
        """Start Ray and every worker.

        Raises:
            WorkerError: naming the worker that failed or did not start in time, and the cause.
        """
        self._began = time.time()
        self._running = True
        atexit.register(self.end)
        self._owns_ray = await asyncio.to_thread(_start_ray, self._config)
        self._processes = descendants()
        primaries = (*self._topology.primary_rollouters, *self._topology.primary_trainers)
        auxiliaries = (*self._topology.auxiliary_rollouters, *self._topology.auxiliary_trainers)
        port = _free_port()
        if self.exclusive:
            await self._start_all(auxiliaries, port)
            await gather_or_cancel(self[worker].call("sleep") for worker in auxiliaries)
            await self._start_all(primaries, port)
        else:
            await self._start_all((*primaries, *auxiliaries), port)

    async def close(self) -> None:
        """Ask every worker to stop, then end what is left. Idempotent, never raises."""
        if not self._running:
            return
        try:
            calls = [handle.call("close", timeout_seconds=_CLOSE_SECONDS) for handle in self._handles.values()]
            await asyncio.gather(*calls, return_exceptions=True)
        finally:
            self.end()

    def end(self) -> None:
        """End every process now. Idempotent, never raises."""
        if not self._running:
            return
        self._running = False
        atexit.unregister(self.end)
        import ray

        leftovers = [*self.process_ids, *self._processes, *descendants()]
        for handle in self._handles.values():
            try:
                ray.kill(handle.actor)
            except Exception as error:
                print(f"bidirl: {handle.worker.name} was not there to be stopped: {error!r}")
        self._handles.clear()
        if self._owns_ray:
            ray.shutdown()
            end_processes(leftovers, self._began)

    async def restart(self, worker: Worker) -> None:
        """End what is left of a worker and start a new one in its place.

        Raises:
            WorkerError: if that does not start in time.
        """
        import ray

        handle = self._handles.pop(worker, None)
        if handle is not None:
            ray.kill(handle.actor)
            await asyncio.to_thread(end_processes, list(handle.process_ids), self._began)
        self._num_restarts += 1
        await self._start_all((worker,), _free_port())

    async def _start_all(self, workers: Sequence[Worker], port: int) -> None:
        for worker in workers:
            actor = self._actor(worker, port)
            self._handles[worker] = WorkerHandle(worker, actor, self._config.verb_timeout_seconds)
        limit = self._config.worker_start_timeout_seconds
        calls = [self[worker].call("start", timeout_seconds=limit) for worker in workers]
        for worker, process_ids in zip(workers, await gather_or_cancel(calls), strict=True):
            self[worker].process_ids = tuple(process_ids)

    def _actor(self, worker: Worker, port: int) -> Any:
        import ray

        cores = device_cores(self._config, worker.devices)
        name = f"{worker.name}.{self._num_restarts}" if self._num_restarts else worker.name
        options = {"name": name, "num_cpus": 0, "max_restarts": 0}
        if worker.role is Role.ROLLOUTER:
            return ray.remote(RolloutActor).options(**options).remote(self._config, worker.name, worker.devices, cores)
        rendezvous = None
        if worker.primary:
            rendezvous = (worker.index, len(self._topology.primary_trainers), port)
        return (
            ray.remote(TrainerActor)
            .options(**options)
            .remote(self._config, self._grpo, worker.devices, cores, rendezvous)
        )


def device_cores(config: RayConfig, devices: Sequence[int]) -> tuple[int, ...]:
    """Cores of these devices: device i owns the i-th run of ``cores_per_device`` allowed cores. Empty on ``cuda``."""
    if config.accelerator != "cpu":
        return ()
    cores, size = sorted(os.sched_getaffinity(0)), config.cores_per_device
    return tuple(core for device in devices for core in cores[device * size : (device + 1) * size])


def _start_ray(config: RayConfig) -> bool:
    """Start a private Ray on the loopback interface, unless this process is connected to one. Whether it did."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if ray.is_initialized():
        return False
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=int(config.object_store_gib * 2**30),
        log_to_driver=False,
        logging_level="ERROR",
        namespace="bidirl",
        _node_ip_address="127.0.0.1",
    )
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
