"""Every verb of the Cluster contract on Ray actors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bidirl.core.chunks import Chunk, ChunkResult, SubStage
from bidirl.core.cluster import BatchInfo, ChunkReport, Cluster, RolloutReport
from bidirl.core.errors import ConfigError, GradientsLost, InvariantError, SwitchError, WorkerError
from bidirl.core.groups import Group, Prompt
from bidirl.core.topology import Role, Topology, Worker
from bidirl.runtime.learning import GrpoConfig, prepare_batch, step_metrics
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.ray.fleet import Fleet
from bidirl.runtime.ray.handles import gather_or_cancel
from bidirl.runtime.ray.hot_switch import check_hardware
from bidirl.runtime.ray.learner_files import read_counts, read_weights, write_weights
from bidirl.runtime.ray.rewards import PromptSource, score
from bidirl.runtime.ray.weights import Weights


class RayCluster(Cluster):
    """Real engines. Built with plain settings; nothing starts before :meth:`start`.

    Raises:
        ConfigError: if this machine cannot hold the topology.
    """

    def __init__(self, topology: Topology, config: RayConfig, grpo: GrpoConfig, task: PromptSource) -> None:
        check_hardware(config, topology)
        self._topology = topology
        self._config = config
        self._grpo = grpo
        self._task = task
        self._began = time.monotonic()
        self._fleet = Fleet(topology, config, grpo)
        self._awake: set[Worker] = set()
        self._generating: dict[tuple[Worker, int], int] = {}
        self._num_calls = 0
        self._served: dict[Worker, int] = {}
        self._weights: dict[int, Any] = {}
        self._batch: tuple[int, int, Any] | None = None
        self._chunk_metrics: dict[int, Mapping[str, float]] = {}
        self._unmerged: set[Worker] = set()

    @property
    def world(self) -> str:
        """``"ray"``."""
        return "ray"

    @property
    def topology(self) -> Topology:
        """Where everything is."""
        return self._topology

    @property
    def max_num_seqs(self) -> int:
        """Sequences that one rollout replica runs at once."""
        return self._config.max_num_seqs

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Processes of all workers, once started."""
        return self._fleet.process_ids

    def now_seconds(self) -> float:
        """Monotonic seconds since the cluster was built."""
        return time.monotonic() - self._began

    async def start(self) -> None:
        """Start all workers concurrently, and load and probe version 0 everywhere."""
        try:
            await self._fleet.start()
            self._awake = {*self._topology.primary_rollouters, *self._topology.primary_trainers}
            await self.export_weights(0)
            passive = () if self._fleet.exclusive else self._topology.auxiliary_rollouters
            rollouters = (*self._topology.primary_rollouters, *passive)
            await gather_or_cancel([self._load(worker, 0) for worker in rollouters])
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop every worker and Ray. Idempotent."""
        self._awake = set()
        self._weights.clear()
        self._batch = None
        await self._fleet.close()

    def prompt(self, group_id: int) -> Prompt:
        """The task's prompt.

        Raises:
            ConfigError: if it leaves no room for a response.
        """
        prompt = self._task.prompt(group_id)
        if prompt.num_tokens >= self._config.max_model_len:
            raise ConfigError(
                f"max_model_len: {self._config.max_model_len} cannot hold the prompt of group {group_id} "
                f"({prompt.num_tokens} tokens) and a response; raise it or use shorter prompts"
            )
        return prompt

    # -- rollout -----------------------------------------------------------------------------------------------------

    async def generate(self, worker: Worker, group: Group) -> RolloutReport:
        """Generate on one engine; samples that ended here are scored."""
        self._require_awake(worker, "generate")
        key, handle = (worker, group.group_id), self._fleet[worker]
        if key in self._generating:
            raise InvariantError(1, f"group {group.group_id} is already being generated on {worker.name}")
        self._num_calls += 1
        call_id = self._generating[key] = self._num_calls
        began = time.monotonic()
        reference = handle.submit("generate", call_id, group)
        try:
            report, seconds = await handle.wait(reference, f"generate of group {group.group_id}")
        except asyncio.CancelledError:
            handle.submit("interrupt", [call_id])
            raise
        finally:
            del self._generating[key]
        scored = await score(self._task, report.group, self._config.reward_timeout_seconds)
        overhead_seconds = max(0.0, time.monotonic() - began - seconds)
        scored_report: RolloutReport = replace(report, group=scored, overhead_seconds=overhead_seconds)
        return scored_report

    async def interrupt(self, worker: Worker, group_ids: Sequence[int]) -> None:
        """Make the calls of these groups return; groups that are not being generated there are ignored."""
        found = [self._generating.get((worker, group_id)) for group_id in group_ids]
        if call_ids := [call_id for call_id in found if call_id is not None]:
            await self._fleet[worker].call("interrupt", call_ids)

    # -- training ----------------------------------------------------------------------------------------------------

    async def begin_batch(self, step: int, version: int, groups: Sequence[Group]) -> BatchInfo:
        """Prepare the batch in the driver and give it to the primary trainers."""
        import ray

        prepared = prepare_batch(groups, self._grpo)
        self._batch = (step, version, ray.put(prepared))
        self._chunk_metrics, self._unmerged = {}, set()
        await self._primaries("begin_batch", *self._batch)
        return BatchInfo(prepared.num_trainable_tokens, prepared.metrics)

    async def train_chunks(
        self, workers: Sequence[Worker], chunks: Sequence[Chunk], inputs: Sequence[Sequence[ChunkResult]]
    ) -> ChunkReport:
        """Deal chunks out in turn; primaries run equal numbers of rounds, some of them empty."""
        if self._batch is None:
            raise InvariantError(5, "chunks were run before begin_batch")
        for worker in workers:
            self._require_awake(worker, "train_chunks")
        lockstep = all(worker.primary for worker in workers)
        workers = workers if lockstep else workers[: max(1, len(chunks))]
        rounds = -(-len(chunks) // len(workers))
        calls = []
        for rank, worker in enumerate(workers):
            mine: list[Chunk | None] = list(chunks[rank :: len(workers)])
            mine_inputs = [list(i) for i in inputs[rank :: len(workers)]]
            padding = rounds - len(mine) if lockstep else 0
            arguments = (*self._batch, mine + [None] * padding, mine_inputs + [[]] * padding)
            calls.append(self._fleet[worker].call("run", *arguments))
            if not worker.primary and any(c and c.sub_stage is SubStage.ACTOR_UPDATE for c in mine):
                self._unmerged.add(worker)
        found = {result.chunk_id: (result, s) for reply in await gather_or_cancel(calls) for result, s in reply}
        ordered = [found[chunk.chunk_id] for chunk in chunks]
        self._chunk_metrics |= {r.chunk_id: r.metrics for r, _ in ordered if r.metrics is not None}
        return ChunkReport(tuple(r for r, _ in ordered), tuple(s for _, s in ordered))

    async def merge_gradients(self, workers: Sequence[Worker]) -> None:
        """Take each auxiliary's sum once, and hand it to every primary."""
        references = [self._fleet[worker].submit("take_gradients") for worker in workers]
        self._unmerged.difference_update(workers)
        # An actor answers in order: one that answers now has handed its gradients over.
        answers = await asyncio.gather(*(self._fleet[w].call("ping") for w in workers), return_exceptions=True)
        failed = {w.name: error for w, error in zip(workers, answers, strict=True) if isinstance(error, WorkerError)}
        if failed:
            raise GradientsLost(tuple(failed), str(next(iter(failed.values()))))
        for reference in references:
            await self._primaries("add_gradients", reference)

    async def optimizer_step(self, version: int) -> Mapping[str, float]:
        """One step on all primaries; metrics are rank 0's and the means over the batch's tokens."""
        if self._unmerged:
            names = ", ".join(sorted(worker.name for worker in self._unmerged))
            raise InvariantError(6, f"optimizer step before the gradients of {names} were merged")
        if self._batch is None or self._batch[1] != version:
            raise InvariantError(6, f"optimizer step for version {version} without a batch for it")
        engine_metrics = (await self._primaries("step"))[0]
        self._batch = None
        ordered = [self._chunk_metrics[chunk_id] for chunk_id in sorted(self._chunk_metrics)]
        return {**step_metrics(ordered), **engine_metrics}

    async def parameter_digest(self) -> str:
        """SHA-256 of rank 0's parameters."""
        return str((await self._primaries("digest"))[0])

    async def export_weights(self, version: int, oldest_needed: int | None = None) -> None:
        """Put rank 0's weights into the object store, and forget the versions that nobody needs any more."""
        handles = [self._fleet[worker] for worker in self._topology.primary_trainers]
        references = [handle.submit("export", version) for handle in handles]
        await gather_or_cancel([h.wait(r, "export_weights") for h, r in zip(handles, references, strict=True)])
        self._weights[version] = references[0]
        oldest = version - 1 if oldest_needed is None else oldest_needed
        in_use = set(self._served.values())
        self._weights = {v: reference for v, reference in self._weights.items() if v >= oldest or v in in_use}

    # -- weights and switches ----------------------------------------------------------------------------------------

    async def load_weights(self, worker: Worker, version: int) -> int:
        """Load, probe, confirm."""
        self._require_awake(worker, "load_weights")
        return await self._load(worker, version)

    async def switch_in(self, worker: Worker, version: int) -> int:
        """Sleep the primaries of the devices, wake the auxiliary, load, confirm; undo everything if that fails.

        Raises:
            SwitchError: if it failed and was undone.
            WorkerError: if it could not be undone.
        """
        primaries = self._primaries_under(worker)
        asleep: list[Worker] = []
        try:
            for primary in primaries:
                asleep.append(primary)
                self._awake.discard(primary)
                await self._fleet[primary].call("sleep")
            await self._fleet[worker].call("wake", None)
            confirmed = await self._load(worker, version)
        except WorkerError as error:
            try:
                await self._fleet[worker].call("sleep")
                for primary in asleep:
                    await self._wake_primary(primary)
            except WorkerError as second:
                raise WorkerError(f"switch-in of {worker.name} failed and could not be undone: {second}") from error
            raise SwitchError(f"switch-in of {worker.name} failed and was undone: {error}") from error
        self._awake.add(worker)
        return confirmed

    async def switch_out(self, worker: Worker) -> None:
        """Sleep the auxiliary, wake the primaries of its devices."""
        if worker in self._unmerged:
            raise InvariantError(6, f"{worker.name} was switched out before its gradients were merged")
        self._awake.discard(worker)
        await self._fleet[worker].call("sleep")
        for primary in self._primaries_under(worker):
            await self._wake_primary(primary)

    async def save_learner(self, directory: Path, older_versions: Sequence[int]) -> None:
        """The primary trainers' state, and the exported weights of older versions."""
        await self._primaries("save", directory)
        for version in older_versions:
            weights = await asyncio.to_thread(self._exported, version)
            await asyncio.to_thread(write_weights, directory, weights)

    async def load_learner(self, directory: Path, version: int, older_versions: Sequence[int]) -> None:
        """Every primary trainer reads the files; then ``version`` is exported."""
        import ray

        if (found := read_counts(directory)[0]) != version:
            raise ConfigError(f"{directory}: the learner is at version {found}, not at {version}")
        await self._primaries("restore", directory)
        await self.export_weights(version, min((*older_versions, version)))
        layout = (await asyncio.to_thread(self._exported, version)).layout
        for older in older_versions:
            self._weights[older] = ray.put(await asyncio.to_thread(read_weights, directory, older, layout))

    def _exported(self, version: int) -> Weights:
        import ray

        weights: Weights = ray.get(self._weights[version])
        return weights

    async def restart(self, worker: Worker) -> None:
        """A new actor in place of the lost one; primaries of its devices that were lost as well are restarted too."""
        if worker in self._topology.primary_trainers:
            raise InvariantError(12, f"restart: {worker.name} is a primary trainer")
        self._awake.discard(worker)
        self._unmerged.discard(worker)
        await self._fleet.restart(worker)
        if worker.primary:
            self._awake.add(worker)
            return
        await self._fleet[worker].call("sleep")
        for primary in self._primaries_under(worker):
            try:
                await self._wake_primary(primary)
            except WorkerError:
                served = self._served[primary]
                await self.restart(primary)
                await self._load(primary, served)

    async def _wake_primary(self, primary: Worker) -> None:
        weights = self._weights.get(self._served.get(primary, max(self._weights)))
        await self._fleet[primary].call("wake", weights)
        self._awake.add(primary)

    async def _load(self, worker: Worker, version: int) -> int:
        weights = self._weights.get(version)
        if weights is None:
            raise WorkerError(f"{worker.name}: version {version} was asked for, exported are {sorted(self._weights)}")
        confirmed: int = await self._fleet[worker].call("load_weights", weights)
        if worker.role is Role.ROLLOUTER:
            self._served[worker] = confirmed
        return confirmed

    def _primaries_under(self, worker: Worker) -> list[Worker]:
        primaries = (*self._topology.primary_rollouters, *self._topology.primary_trainers)
        return [p for p in primaries if set(p.devices) & set(worker.devices)]

    # -- helpers -----------------------------------------------------------------------------------------------------

    async def _primaries(self, method: str, *args: Any) -> list[Any]:
        return await gather_or_cancel([self._fleet[w].call(method, *args) for w in self._topology.primary_trainers])

    def _require_awake(self, worker: Worker, verb: str) -> None:
        if worker not in self._awake:
            raise InvariantError(4, f"{verb} was called on {worker.name}, which is passive")
