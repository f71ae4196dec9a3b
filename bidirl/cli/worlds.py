"""From a config to a running job: the one place that puts the parts together, for either world.

Heavy packages are imported only inside the function that needs them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bidirl.cli.config import Config
from bidirl.core.cluster import Cluster
from bidirl.core.coordinator import run_job
from bidirl.core.records import Recorder, TeeRecorder
from bidirl.core.topology import Topology
from bidirl.models.estimator import Estimator
from bidirl.runtime.outputs import FileRecorder, ProgressRecorder, make_run_directory
from bidirl.runtime.sim.virtual_time import run_virtual


def real_cluster(config: Config) -> Cluster:
    """Ray, vLLM and DeepSpeed. Nothing starts here."""
    from bidirl.runtime.ray.cluster import RayCluster
    from bidirl.runtime.ray.token_task import TokenTask

    task = TokenTask(config.task, config.ray)
    return RayCluster(config.envelope.topology(), config.ray, config.learning, task)


def simulated_cluster(config: Config) -> Cluster:
    """Virtual time."""
    from bidirl.runtime.sim.cluster import SimCluster

    world, topology = config.simulation, config.envelope.topology()
    return SimCluster(
        topology,
        world.workload,
        world.resolved_timings(topology),
        max_num_seqs=world.max_num_seqs,
        kv_tokens=world.resolved_kv_tokens(topology),
        seed=config.seed,
    )


def run(
    config: Config,
    world: str,
    resolved_yaml: str,
    arguments: list[str],
    observer: Recorder | None = None,
    resume_from: Path | None = None,
) -> Mapping[str, Any]:
    """Run the job, with its outputs, and return its summary.

    ``observer`` is told everything besides; ``resume_from`` is the checkpoint to go on from.

    Raises:
        ConfigError: before anything has started.
        BidirlError: if the run failed; what was finished is on disk.
    """
    cluster = real_cluster(config) if world == "ray" else simulated_cluster(config)
    recorder = make_recorder(config, world, cluster.topology, resolved_yaml, arguments)
    if observer is not None:
        recorder = TeeRecorder((*recorder.recorders, observer))
    checkpoints = None
    if config.checkpoint_every or resume_from is not None:
        from bidirl.runtime.outputs.checkpoints import DirectoryCheckpoints

        directory = run_directory(config) / "checkpoints"
        checkpoints = DirectoryCheckpoints(directory, config.checkpoint_every, resume_from)
    estimates = make_estimator(config, world)
    job = run_job(cluster, config.job(), config.policy, config.splitter, estimates, recorder, checkpoints)
    return run_virtual(job) if world == "sim" else asyncio.run(_interruptible(job))


def simulate(config: Config, recorder: Recorder | None = None) -> Mapping[str, Any]:
    """Run the job in virtual time, with no outputs but those of ``recorder``, and return its summary."""
    cluster, estimates = simulated_cluster(config), make_estimator(config, "sim")
    job = run_job(cluster, config.job(), config.policy, config.splitter, estimates, recorder or Recorder())
    return run_virtual(job)


def make_estimator(config: Config, world: str) -> Estimator:
    """Stage models, length statistics and switch costs of the job."""
    limit = config.ray.max_response_tokens if world == "ray" else config.simulation.workload.max_response_tokens
    return Estimator(
        rollout_model=config.rollout_model,
        trainer_model=config.trainer_model,
        switch_costs=config.switch_costs,
        max_response_tokens=limit,
    )


def make_recorder(
    config: Config, world: str, topology: Topology, resolved_yaml: str, arguments: list[str]
) -> TeeRecorder:
    """Progress, and what ``tracking`` asks for."""
    recorders: list[Recorder] = [ProgressRecorder(config.name, world, config.num_steps)]
    if config.tracking != "none":
        if config.tracking == "wandb":
            from bidirl.runtime.outputs.wandb_recorder import WandbRecorder, require_wandb

            require_wandb()
        directory = make_run_directory(run_directory(config), resolved_yaml, config.seed, arguments)
        recorders.append(FileRecorder(directory, topology, world))
        if config.tracking == "wandb":
            recorders.append(WandbRecorder(directory, config.wandb_project, config.name, world, resolved_yaml))
    return TeeRecorder(recorders)


def run_directory(config: Config) -> Path:
    """Where the run goes."""
    return Path(config.output_dir) if config.output_dir is not None else Path("runs") / config.name


async def _interruptible(job: Any) -> Any:
    """Let SIGTERM end the run like Ctrl-C does: the job is cancelled and closes its cluster."""
    task = asyncio.ensure_future(job)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task
