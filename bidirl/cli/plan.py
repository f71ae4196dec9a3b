"""``bidirl plan``: which split of a device budget (Algorithm 1), why, and why not the others. Predicted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from bidirl.cli.config import Config
from bidirl.cli.console import show
from bidirl.cli.options import last, take, take_config_file
from bidirl.cli.parsing import parse_config
from bidirl.cli.simulation import SimulationConfig, layouts
from bidirl.core.errors import ConfigError
from bidirl.core.topology import Role
from bidirl.core.work import RolloutWork, TrainerWork
from bidirl.models.lengths import LengthStats
from bidirl.models.llm import llm
from bidirl.models.memory import ReplicaMemory
from bidirl.models.oracle import OracleRolloutModel, OracleTrainerModel
from bidirl.models.sim_timings import SimTimings
from bidirl.models.testbeds import find_testbed
from bidirl.policies.planner import Placement, Plan, plan, smallest_layout
from bidirl.runtime.outputs.report import Report

USAGE = "bidirl plan CONFIG [--num_devices N] [--whole_nodes true] [--key value …]"
_SHOWN = 12
_ANY_BUDGET = 4096


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What is planned for.

    Attributes:
        num_devices: the budget; 0 takes that of the config's envelope.
        whole_nodes: whether each pool must consist of whole nodes.
        devices_per_node: size of a node.
        rollouter_layout_devices: devices of one rollouter replica; 0 takes the smallest that fits in memory.
        trainer_layout_devices: devices of one trainer replica; likewise.
    """

    num_devices: int = 0
    whole_nodes: bool = False
    devices_per_node: int = 8
    rollouter_layout_devices: int = 0
    trainer_layout_devices: int = 0


def main(options: list[str]) -> int:
    """Print the chosen split, the ranking and every excluded candidate; returns the exit status."""
    file, rest = take_config_file(options, USAGE)
    own, rest = take(rest, *(field.name for field in fields(PlanOptions)), "output_dir")
    output = last(own.pop("output_dir"), "output_dir", "")
    given = [f"--{key}={last(values, key, '')}" for key, values in own.items() if values]
    wanted = parse_config(PlanOptions, None, given).value
    config = parse_config(Config, file, rest, Config.UNBUILT["sim"]).value
    found = plan_job(config, wanted)
    directory = Path(output) if output else None
    best = found.chosen
    print(
        f"chosen: rollpool {best.rollpool_devices} + trainpool {best.trainpool_devices} devices, "
        f"{found.rollouter_layout_devices} per rollouter, {found.trainer_layout_devices} per trainer: "
        f"T_r {best.rollout_seconds:.2f} s, T_t {best.train_seconds:.2f} s, "
        f"{best.groups_per_second:.3f} groups/s (predicted by the models of the simulation)"
    )
    show(ranking(found, config.name), directory)
    show(exclusions(found, config.name), directory)
    return 0


def plan_job(config: Config, wanted: PlanOptions) -> Plan:
    """Algorithm 1 on the stage models and the workload of the config's simulated world.

    Raises:
        ConfigError: which constraint fails, and the smallest budget that works.
    """
    world, topology = config.simulation, config.envelope.topology()
    budget = wanted.num_devices or topology.num_devices
    if budget < 2:
        raise ConfigError(f"num_devices is {budget}: two pools need at least 2 devices")
    chosen = {Role.ROLLOUTER: wanted.rollouter_layout_devices, Role.TRAINER: wanted.trainer_layout_devices}
    memory = replica_memory(config)
    for role, size in zip(Role, layouts(topology), strict=True):
        if not chosen[role]:
            chosen[role] = size if memory is None else smallest_layout(role, _ANY_BUDGET, memory)
        elif memory is not None and (short := memory.shortage_bytes(role, chosen[role])) > 0:
            fits = smallest_layout(role, _ANY_BUDGET, memory)
            raise ConfigError(
                f"{role}_layout_devices is {chosen[role]}: memory is {short / 2**30:.1f} GiB short per device: "
                f"use {fits}, a smaller model or devices with more memory"
            )
    timings = _timings(world, chosen[Role.ROLLOUTER], chosen[Role.TRAINER])
    rollout_work, trainer_work = batch_work(config)
    placement = Placement(devices_per_node=wanted.devices_per_node, whole_nodes=wanted.whole_nodes)
    models = stage_models(timings)
    sizes = chosen[Role.ROLLOUTER], chosen[Role.TRAINER]
    try:
        return plan(budget, config.groups_per_batch, rollout_work, trainer_work, *models, *sizes, placement)
    except ConfigError as error:
        if memory is None:
            raise
        raise ConfigError(f"{error}; layouts follow from memory: {_memory_text(memory, sizes)}") from None


def replica_memory(config: Config) -> ReplicaMemory | None:
    """The memory model of the config's testbed; ``None`` without one."""
    world = config.simulation
    if world.testbed is None or world.model is None:
        return None
    workload = world.workload
    prompt = max(workload.prompt_tokens(group) for group in range(config.groups_per_batch))
    return ReplicaMemory(
        find_testbed(world.testbed).gpu,
        llm(world.model),
        max_tokens_per_chunk=config.max_tokens_per_chunk,
        group_size=config.group_size,
        max_sequence_tokens=prompt + workload.max_response_tokens,
    )


def stage_models(timings: SimTimings) -> tuple[OracleRolloutModel, OracleTrainerModel]:
    """M_r and M_t with the constants of the simulated world."""
    rollout = timings.rollout
    return (
        OracleRolloutModel(
            prefill_seconds=rollout.prefill_seconds,
            step_seconds=rollout.step_seconds,
            token_seconds=rollout.token_seconds,
            context_seconds=rollout.context_seconds,
        ),
        OracleTrainerModel(
            actor_update=timings.actor_update, old_logprob=timings.old_logprob, ref_logprob=timings.ref_logprob
        ),
    )


def batch_work(config: Config) -> tuple[RolloutWork, TrainerWork]:
    """One batch of the workload (its first) as work for M_r and for M_t."""
    workload, groups = config.simulation.workload, range(config.groups_per_batch)
    lengths = LengthStats(max_response_tokens=workload.max_response_tokens)
    prompts: list[int] = []
    sizes: list[int] = []
    for group in groups:
        prompt = workload.prompt_tokens(group)
        for tokens in workload.response_tokens(group):
            lengths.observe(tokens)
            prompts.append(prompt)
            sizes.append(prompt + tokens)
    slots = config.simulation.max_num_seqs
    if config.max_groups_per_rollouter:
        slots = min(slots, config.max_groups_per_rollouter * config.group_size)
    parts: list[int] = []
    for size in sizes:
        if parts and parts[-1] + size <= config.max_tokens_per_chunk:
            parts[-1] += size
        else:
            parts.append(size)
    chunks = tuple((stage, tokens) for stage in config.job().sub_stages for tokens in parts)
    return lengths.rollout_work([0] * len(sizes), prompts, False, slots), TrainerWork(chunks)


def ranking(found: Plan, name: str) -> Report:
    """The candidates, best first."""
    rows = [
        (
            str(rank),
            f"{c.rollpool_devices} + {c.trainpool_devices}",
            f"{c.rollout_seconds:.2f}",
            f"{c.train_seconds:.2f}",
            f"{c.groups_per_second:.3f}",
            "rollout" if c.rollout_seconds > c.train_seconds else "training",
        )
        for rank, c in enumerate(found.ranked, start=1)
    ]
    notes: tuple[str, ...] = ("predicted: λ_pipe = min(λ_r, λ_t), Algorithm 1; no lease is counted",)
    if len(rows) > _SHOWN:
        notes = (*notes, f"{len(rows) - _SHOWN} slower candidates are left out")
    columns = ("rank", "rollpool + trainpool", "T_r s", "T_t s", "groups/s", "slower stage")
    return Report("plan_ranking", f"{name}: ranked splits (simulated)", columns, tuple(rows[:_SHOWN]), notes)


def exclusions(found: Plan, name: str) -> Report:
    """Every candidate that was not evaluated, with its reason."""
    rows = tuple((f"{x.rollpool_devices} + {x.trainpool_devices}", x.reason) for x in found.excluded)
    note = () if rows else ("no candidate was excluded",)
    return Report("plan_excluded", f"{name}: excluded splits", ("rollpool + trainpool", "reason"), rows, note)


def _timings(world: SimulationConfig, rollouter: int, trainer: int) -> SimTimings:
    from bidirl.core.topology import build_topology

    unit = rollouter * trainer
    return world.resolved_timings(build_topology(unit, unit, rollouter, trainer))


def _memory_text(memory: ReplicaMemory, sizes: tuple[int, int]) -> str:
    texts = []
    for role, size in zip(Role, sizes, strict=True):
        parts = ", ".join(f"{key} {value / 1e9:.1f}" for key, value in memory.parts(role, size).items())
        texts.append(f"one {role} over {size} holds {parts} GB per device")
    return f"{memory.model.name} on {memory.device.name} ({memory.device.memory_bytes / 1e9:.0f} GB): " + "; ".join(
        texts
    )
