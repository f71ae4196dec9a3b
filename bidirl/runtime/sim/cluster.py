"""The simulated cluster: every verb of the contract in virtual time, with the rules checked that real workers obey."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bidirl.core.chunks import Chunk, ChunkResult
from bidirl.core.cluster import BatchInfo, ChunkReport, Cluster, RolloutReport
from bidirl.core.errors import BidirlError, ConfigError, GradientsLost, InvariantError, LearnerLost, WorkerError
from bidirl.core.groups import Group, Prompt
from bidirl.core.topology import Direction, Role, Topology, Worker
from bidirl.models.sim_timings import SimTimings
from bidirl.runtime.sim.faults import CallSite, Fault, FaultPlan
from bidirl.runtime.sim.learner import SimLearner
from bidirl.runtime.sim.noise import Noise
from bidirl.runtime.sim.replica import SimReplica
from bidirl.runtime.sim.roles import RoleBoard
from bidirl.runtime.sim.trainers import deal
from bidirl.runtime.sim.workload import Workload


def direction_of(worker: Worker) -> Direction:
    """The direction in which an auxiliary worker borrows."""
    return Direction.ROLLOUTER_ON_TRAINPOOL if worker.role is Role.ROLLOUTER else Direction.TRAINER_ON_ROLLPOOL


class SimCluster(Cluster):
    """Devices, weights and tokens are modelled; nothing is computed. Runs under :func:`run_virtual`.

    Args:
        topology: where everything is.
        workload: lengths and rewards.
        timings: what things take.
        max_num_seqs: sequences that one rollout replica runs at once.
        kv_tokens: context tokens that one rollout replica holds; ``None`` is unlimited.
        seed: of the noise streams.
        faults: asked at the beginning of every call; for tests.
    """

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        timings: SimTimings,
        max_num_seqs: int = 64,
        kv_tokens: int | None = None,
        seed: int = 0,
        faults: FaultPlan | None = None,
    ) -> None:
        self._topology = topology
        self._max_num_seqs = max_num_seqs
        self.workload = workload
        self.timings = timings
        self.roles = RoleBoard(topology)
        self.learner = SimLearner()
        rollouters = (*topology.primary_rollouters, *topology.auxiliary_rollouters)
        self._kv_tokens = kv_tokens
        self.replicas = {worker: SimReplica(timings.rollout, max_num_seqs, kv_tokens) for worker in rollouters}
        self._dead: dict[Worker, WorkerError] = {}
        self._noise = Noise(seed, topology)
        self._faults = faults
        self._num_calls: dict[tuple[str, str], int] = {}
        self._trainer_versions: dict[Worker, int] = {}
        self._arriving: dict[tuple[Worker, int], bool] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- what is where -----------------------------------------------------------------------------------------------

    @property
    def world(self) -> str:
        """``"sim"``."""
        return "sim"

    @property
    def topology(self) -> Topology:
        """Where everything is."""
        return self._topology

    @property
    def max_num_seqs(self) -> int:
        """Sequences that one rollout replica runs at once."""
        return self._max_num_seqs

    def now_seconds(self) -> float:
        """Virtual seconds; 0 before the start."""
        return 0.0 if self._loop is None else self._loop.time()

    def prompt(self, group_id: int) -> Prompt:
        """A prompt of the workload's length."""
        return Prompt(group_id, self.workload.prompt_tokens(group_id))

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Primaries are active and serve version 0."""
        if self.roles.started:
            raise InvariantError(4, "the cluster was started twice")
        self._loop = asyncio.get_running_loop()
        await self._spend("start", None, self.timings.startup_seconds)
        for worker in self._topology.primary_rollouters:
            self._serve(worker, 0)
        self.roles.started = True

    async def close(self) -> None:
        """Nothing works any more."""
        self.roles.started = False
        for replica in self.replicas.values():
            replica.close()

    # -- rollout -----------------------------------------------------------------------------------------------------

    async def generate(self, worker: Worker, group: Group) -> RolloutReport:
        """See :class:`Cluster`; lengths and rewards come from the workload."""
        self.roles.require(worker, Role.ROLLOUTER, "generate")
        self._check_alive(worker)
        fault = self._fault("generate", worker)
        with self._hold((worker,), "generate", alone=False):
            if fault is None:
                return self._scored(worker, await self._generate(worker, group))
            if fault.error is None:
                await asyncio.sleep(fault.after_seconds)
                self._check_alive(worker)
                return self._scored(worker, await self._generate(worker, group))
            try:
                async with asyncio.timeout(None if fault.loses_reply else fault.after_seconds):
                    await self._generate(worker, group)
            except TimeoutError:
                pass
            self._kill(worker, fault)
            raise self._failure(worker, fault.error)

    def _scored(self, worker: Worker, report: RolloutReport) -> RolloutReport:
        """The report, with an error in the group where the reward function fails."""
        fault = self._fault("reward", worker) if report.group.finished else None
        if fault is None:
            return report
        return replace(report, group=replace(report.group, error=f"the reward raised {fault.error}"))

    async def _generate(self, worker: Worker, group: Group) -> RolloutReport:
        replica, key = self.replicas[worker], (worker, group.group_id)
        if self.timings.generate_overhead_seconds:
            self._arriving[key] = False
            try:
                await asyncio.sleep(self.timings.generate_overhead_seconds)
            finally:
                interrupted = self._arriving.pop(key)
            self._check_alive(worker)
            if interrupted:
                return RolloutReport(group, replica.usage, replica.busy_seconds)
        workload = self.workload
        targets, rewards = workload.response_tokens(group.group_id), workload.rewards(group.group_id)
        report = await replica.generate(group, targets, workload.max_response_tokens, rewards)
        return replace(report, overhead_seconds=self.timings.generate_overhead_seconds)

    async def interrupt(self, worker: Worker, group_ids: Sequence[int]) -> None:
        """Takes effect at the end of the running decode step."""
        self.roles.require(worker, Role.ROLLOUTER, "interrupt")
        self._check_alive(worker)
        await self._spend("interrupt", worker, 0.0)
        for group_id in group_ids:
            if (worker, group_id) in self._arriving:
                self._arriving[worker, group_id] = True
        self.replicas[worker].interrupt(group_ids)

    async def load_weights(self, worker: Worker, version: int) -> int:
        """See :class:`Cluster`; nothing may run on the worker meanwhile."""
        self.roles.require(worker, Role.ROLLOUTER, "load_weights")
        self.learner.check_available(version, worker)
        self._check_alive(worker)
        with self._hold((worker,), "load_weights"):
            await self._spend("load_weights", worker, self.timings.load_weights_seconds)
            return self._serve(worker, version)

    def _serve(self, worker: Worker, version: int) -> int:
        replica = self.replicas[worker]
        replica.version = version
        factor = self._noise.rollout(self.timings.rollout_noise, worker, version)
        replica.timings = self.timings.rollout if factor == 1.0 else self.timings.rollout.scaled(factor)
        return version

    # -- training ----------------------------------------------------------------------------------------------------

    async def begin_batch(self, step: int, version: int, groups: Sequence[Group]) -> BatchInfo:
        """See :class:`Cluster`; tokens of groups with equal rewards are not trainable."""
        with self._hold_trainers("begin_batch"):
            info = self.learner.begin_batch(version, groups)
            await self._spend("begin_batch", None, self.timings.begin_batch_seconds)
            return info

    async def train_chunks(
        self, workers: Sequence[Worker], chunks: Sequence[Chunk], inputs: Sequence[Sequence[ChunkResult]]
    ) -> ChunkReport:
        """Chunks are dealt over the workers; the call lasts as long as the slowest of them."""
        for worker in workers:
            self.roles.require(worker, Role.TRAINER, "train_chunks")
            if not worker.primary and self._trainer_versions[worker] != self.learner.version:
                raise InvariantError(8, f"{worker.name} has version {self._trainer_versions[worker]} of the weights")
        for worker in workers:
            self._check_alive(worker)
        self.learner.check_chunks(chunks, inputs)
        with self._hold(workers, "train_chunks"):
            owners = deal(self.timings, chunks, len(workers))
            seconds = tuple(self._chunk_seconds(chunk) for chunk in chunks)
            loads = [0.0] * len(workers)
            for owner, cost in zip(owners, seconds, strict=True):
                loads[owner] += cost
            await self._spend("train_chunks", workers[0], max(loads) + self.timings.train_overhead_seconds)
        for owner, chunk in zip(owners, chunks, strict=True):
            self.learner.trained(workers[owner], chunk)
        return ChunkReport(tuple(ChunkResult(chunk.chunk_id) for chunk in chunks), seconds)

    def _chunk_seconds(self, chunk: Chunk) -> float:
        factor = self._noise.chunk(self.timings.trainer_noise, self.learner.version, chunk.chunk_id)
        return self.timings.chunk_seconds(chunk.sub_stage, chunk.num_tokens) * factor

    async def merge_gradients(self, workers: Sequence[Worker]) -> None:
        """Costs C_grad once for all workers, which send side by side."""
        for worker in workers:
            self.roles.require(worker, Role.TRAINER, "merge_gradients")
        with self._hold((*self._topology.primary_trainers, *workers), "merge_gradients"):
            grad_seconds = self.timings.trainer_on_rollpool.grad_seconds
            try:
                await self._spend("merge_gradients", workers[0], grad_seconds, self.timings.switch_noise)
                for worker in workers:
                    self._check_alive(worker)
            except WorkerError as error:
                self.learner.forget(workers)
                lost = {workers[0].name} | {worker.name for worker in workers if worker in self._dead}
                raise GradientsLost(tuple(sorted(lost)), str(error)) from error
            self.learner.merge(workers)

    async def optimizer_step(self, version: int) -> Mapping[str, float]:
        """Refused while a sample of the batch is not trained, or gradients lie at auxiliaries."""
        self.learner.check_step(version)
        with self._hold_trainers("optimizer_step"):
            await self._spend("optimizer_step", None, self.timings.optimizer_step_seconds)
            return self.learner.step()

    async def parameter_digest(self) -> str:
        """Of all batches trained on, in order; takes no time."""
        return self.learner.digest

    async def export_weights(self, version: int, oldest_needed: int | None = None) -> None:
        """See :class:`Cluster`."""
        self.learner.check_export(version)
        with self._hold_trainers("export_weights"):
            await self._spend("export_weights", None, self.timings.export_seconds)
            self.learner.exported = version
            self.learner.oldest_kept = max(0, version - 1) if oldest_needed is None else oldest_needed

    # -- switching ---------------------------------------------------------------------------------------------------

    async def switch_in(self, worker: Worker, version: int) -> int:
        """The devices' primaries must be idle; a fault leaves everything as it was."""
        self.learner.check_available(version, worker)
        self._check_alive(worker)
        self.roles.begin_switch_in(worker)
        succeeded = False
        try:
            cost = self.timings.switch(direction_of(worker))
            await self._spend("switch_in", worker, cost.in_seconds, self.timings.switch_noise)
            succeeded = True
        finally:
            self.roles.end_switch_in(worker, succeeded)
        if worker.role is Role.ROLLOUTER:
            return self._serve(worker, version)
        self._trainer_versions[worker] = version
        return version

    async def switch_out(self, worker: Worker) -> None:
        """The auxiliary must be idle and must hold no gradients that were not merged."""
        self.learner.check_switch_out(worker)
        self._check_alive(worker)
        self.roles.begin_switch_out(worker)
        try:
            cost = self.timings.switch(direction_of(worker))
            await self._spend("switch_out", worker, cost.out_seconds, self.timings.switch_noise)
        finally:
            self.roles.end_switch_out(worker)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    async def save_learner(self, directory: Path, older_versions: Sequence[int]) -> None:
        """Takes no virtual time."""
        (directory / "learner.json").write_text(json.dumps(self.learner.state()), encoding="utf-8")

    async def load_learner(self, directory: Path, version: int, older_versions: Sequence[int]) -> None:
        """Takes no virtual time."""
        self.learner.load_state(json.loads((directory / "learner.json").read_text(encoding="utf-8")))
        if self.learner.version != version:
            raise ConfigError(f"{directory}: the learner is at version {self.learner.version}, not at {version}")
        self.learner.oldest_kept = min((*older_versions, version))

    # -- losses ------------------------------------------------------------------------------------------------------

    async def restart(self, worker: Worker) -> None:
        """As long as the start of the cluster. The worker must have no open call."""
        if worker.primary and worker.role is Role.TRAINER:
            raise InvariantError(12, f"restart: {worker.name} is a primary trainer")
        if worker.role is Role.TRAINER:
            self.learner.forget((worker,))
        self.roles.reset(worker)
        self._dead.pop(worker, None)
        with self._hold((worker,), "restart"):
            await self._spend("restart", worker, self.timings.startup_seconds)
        if worker.role is Role.ROLLOUTER:
            self.replicas[worker].close()
            self.replicas[worker] = SimReplica(self.timings.rollout, self._max_num_seqs, self._kv_tokens)

    def _check_alive(self, worker: Worker) -> None:
        if worker in self._dead:
            raise self._failure(worker, WorkerError(f"{worker.name} is dead: {self._dead[worker]}"))

    def _failure(self, worker: Worker | None, error: WorkerError) -> BidirlError:
        """A fault of a primary trainer, or of the verbs that belong to all of them, loses the learner."""
        learner = worker is None or (worker.primary and worker.role is Role.TRAINER)
        return LearnerLost(str(error)) if learner else error

    def _kill(self, worker: Worker | None, fault: Fault) -> None:
        """The worker dies of the fault, if that is fatal, and every other call on it with it."""
        if worker is None or not fault.kills or fault.error is None:
            return
        self._dead[worker] = fault.error
        if worker.role is Role.ROLLOUTER:
            self.replicas[worker].fail(WorkerError(f"{worker.name} died: {fault.error}"))

    # -- shared ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _hold(self, workers: Sequence[Worker], verb: str, alone: bool = True) -> Iterator[None]:
        """The workers are busy with ``verb`` inside the block."""
        held: list[Worker] = []
        try:
            for worker in workers:
                self.roles.enter(worker, verb, alone)
                held.append(worker)
            yield
        finally:
            for worker in held:
                self.roles.leave(worker, verb)

    @contextmanager
    def _hold_trainers(self, verb: str) -> Iterator[None]:
        """All primary trainers must be active, and are busy inside the block."""
        for worker in self._topology.primary_trainers:
            self.roles.require(worker, Role.TRAINER, verb)
        with self._hold(self._topology.primary_trainers, verb):
            yield

    def _fault(self, verb: str, worker: Worker | None) -> Fault | None:
        if self._faults is None:
            return None
        name = "" if worker is None else worker.name
        number = self._num_calls.get((verb, name), 0)
        self._num_calls[verb, name] = number + 1
        return self._faults(CallSite(verb, name, number, self.now_seconds()))

    async def _spend(self, verb: str, worker: Worker | None, seconds: float, noise: float = 0.0) -> None:
        """Let the call take its time, unless the fault plan has other plans."""
        if noise:
            seconds *= self._noise.call(noise, worker)
        fault = self._fault(verb, worker)
        if fault is None:
            if seconds:
                await asyncio.sleep(seconds)
        elif fault.error is None:
            await asyncio.sleep(seconds + fault.after_seconds)
        else:
            await asyncio.sleep(seconds if fault.loses_reply else min(seconds, fault.after_seconds))
            self._kill(worker, fault)
            raise self._failure(worker, fault.error)
