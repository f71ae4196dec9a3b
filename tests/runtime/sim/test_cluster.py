"""Verbs of the simulated cluster: times, versions, and the rules that it refuses to break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidirl.core.chunks import ChunkQueue, SubStage, plan_chunks
from bidirl.core.errors import InvariantError, SwitchError, WorkerError
from bidirl.core.groups import Group, new_group
from bidirl.core.topology import Topology, build_topology
from bidirl.core.work import SwitchCost
from bidirl.models.sim_timings import RolloutTimings, SimTimings
from bidirl.models.trainer_base import SubStageCost
from bidirl.runtime.sim.cluster import SimCluster
from bidirl.runtime.sim.faults import ScriptedFaults
from bidirl.runtime.sim.virtual_time import run_virtual
from bidirl.runtime.sim.workload import ConstantWorkload, LognormalWorkload

TIMINGS = SimTimings(
    rollout=RolloutTimings(prefill_seconds=0.001, step_seconds=0.5, token_seconds=0.01, context_seconds=1e-4),
    old_logprob=SubStageCost(0.5, 1.0),
    actor_update=SubStageCost(1.0, 2.0),
    rollouter_on_trainpool=SwitchCost(5.0, 3.0),
    trainer_on_rollpool=SwitchCost(4.0, 2.0, 1.0),
    optimizer_step_seconds=10.0,
    export_seconds=20.0,
    load_weights_seconds=30.0,
)
TWO = build_topology(1, 1)


def cluster(topology: Topology = TWO, timings: SimTimings = TIMINGS, **kwargs: Any) -> SimCluster:
    workload = ConstantWorkload(group_size=2, response_tokens=10, prompt_tokens=6)
    return SimCluster(topology, workload, timings, **kwargs)


def run(body: Callable[[SimCluster], Awaitable[Any]], subject: SimCluster | None = None) -> Any:
    async def main() -> Any:
        world = subject or cluster()
        await world.start()
        try:
            return await body(world)
        finally:
            await world.close()
            await world.close()

    return run_virtual(main())


async def finished(world: SimCluster, *ids: int) -> list[Group]:
    worker = world.topology.primary_rollouters[0]
    return [(await world.generate(worker, new_group(world.prompt(i), 2, 0))).group for i in ids]


async def trained(world: SimCluster, groups: list[Group], version: int = 0) -> None:
    await world.begin_batch(version, version, groups)
    queue = ChunkQueue(plan_chunks(groups, (SubStage.OLD_LOGPROB, SubStage.ACTOR_UPDATE), 40))
    while not queue.done:
        chunks = queue.pull(2)
        report = await world.train_chunks(
            world.topology.primary_trainers, chunks, [queue.inputs(chunk) for chunk in chunks]
        )
        for result in report.results:
            queue.finish(result)


def test_a_group_takes_what_the_formula_says() -> None:
    async def body(world: SimCluster) -> float:
        await finished(world, 0)
        return world.now_seconds()

    prefill = 2 * 6 * 0.001
    steps = sum(0.5 + 0.01 * 2 + 1e-4 * 2 * (6 + k) for k in range(10))
    assert run(body) == pytest.approx(prefill + steps)


def test_one_step_takes_its_parts_and_moves_the_version() -> None:
    async def body(world: SimCluster) -> tuple[float, int]:
        groups = await finished(world, 0, 1)
        began = world.now_seconds()
        await trained(world, groups)
        await world.optimizer_step(0)
        await world.export_weights(1)
        loaded = await world.load_weights(world.topology.primary_rollouters[0], 1)
        return world.now_seconds() - began, loaded

    # 64 tokens in two parts of 32: (0.5 + 0.032) + (1 + 2 · 0.032) per part, one trainer
    seconds, loaded = run(body)
    assert seconds == pytest.approx(2 * (0.532 + 1.064) + 60.0)
    assert loaded == 1


def test_a_side_lasts_as_long_as_its_slowest_worker() -> None:
    topology = build_topology(1, 2)

    async def body(world: SimCluster) -> float:
        groups = await finished(world, 0, 1)
        await world.begin_batch(0, 0, groups)
        chunks = plan_chunks(groups, (SubStage.ACTOR_UPDATE,), 16)
        assert len(chunks) == 4
        began = world.now_seconds()
        report = await world.train_chunks(world.topology.primary_trainers, chunks[:3], [(), (), ()])
        assert report.seconds == (1.032, 1.032, 1.032)
        return world.now_seconds() - began

    assert run(body, cluster(topology)) == pytest.approx(2 * 1.032)


def test_tokens_carry_the_version_that_generated_them() -> None:
    async def body(world: SimCluster) -> Group:
        loop, worker = asyncio.get_running_loop(), world.topology.primary_rollouters[0]
        group = new_group(world.prompt(0), 2, 0)
        task = loop.create_task(world.generate(worker, group))
        await asyncio.sleep(2.0)
        await world.interrupt(worker, (0,))
        group = (await task).group
        assert not group.finished
        batch = await finished(world, 7)
        await trained(world, batch)
        await world.optimizer_step(0)
        await world.export_weights(1)
        await world.load_weights(worker, 1)
        return (await world.generate(worker, group)).group

    group = run(body)
    assert group.finished
    for sample in group.samples:
        assert [(span.version, span.num_tokens) for span in sample.spans] == [(0, 4), (1, 6)]


def test_a_lease_in_each_direction() -> None:
    async def body(world: SimCluster) -> list[float]:
        (rollouter,), (trainer,) = world.topology.auxiliary_rollouters, world.topology.auxiliary_trainers
        times = [world.now_seconds()]
        await world.switch_in(rollouter, 0)
        times.append(world.now_seconds())
        report = await world.generate(rollouter, new_group(world.prompt(0), 2, 0))
        assert report.group.finished
        times.append(world.now_seconds())
        await world.switch_out(rollouter)
        times.append(world.now_seconds())
        await world.begin_batch(0, 0, [report.group])
        await world.switch_in(trainer, 0)
        (chunk,) = plan_chunks([report.group], (SubStage.ACTOR_UPDATE,), 100)
        await world.train_chunks((trainer,), (chunk,), ((),))
        with pytest.raises(InvariantError, match="invariant 6"):
            await world.switch_out(trainer)
        with pytest.raises(InvariantError, match="invariant 6"):
            await world.optimizer_step(0)
        await world.merge_gradients((trainer,))
        await world.switch_out(trainer)
        await world.optimizer_step(0)
        return times

    times = run(body)
    assert times[1] - times[0] == 5.0
    assert times[3] - times[2] == 3.0


Rule = Callable[[SimCluster], Awaitable[Any]]


async def generate_on_passive(world: SimCluster) -> None:
    await world.generate(world.topology.auxiliary_rollouters[0], new_group(world.prompt(0), 2, 0))


async def generate_on_trainer(world: SimCluster) -> None:
    await world.generate(world.topology.primary_trainers[0], new_group(world.prompt(0), 2, 0))


async def generate_while_lent(world: SimCluster) -> None:
    await world.switch_in(world.topology.auxiliary_trainers[0], 0)
    await finished(world, 0)


async def switch_in_twice(world: SimCluster) -> None:
    await world.switch_in(world.topology.auxiliary_trainers[0], 0)
    await world.switch_in(world.topology.auxiliary_trainers[0], 0)


async def switch_in_a_primary(world: SimCluster) -> None:
    await world.switch_in(world.topology.primary_trainers[0], 0)


async def switch_in_over_work(world: SimCluster) -> None:
    task = asyncio.get_running_loop().create_task(finished(world, 0))
    await asyncio.sleep(1.0)
    try:
        await world.switch_in(world.topology.auxiliary_trainers[0], 0)
    finally:
        task.cancel()


async def switch_out_a_passive_one(world: SimCluster) -> None:
    await world.switch_out(world.topology.auxiliary_trainers[0])


async def load_over_work(world: SimCluster) -> None:
    task = asyncio.get_running_loop().create_task(finished(world, 0))
    await asyncio.sleep(1.0)
    try:
        await world.load_weights(world.topology.primary_rollouters[0], 0)
    finally:
        task.cancel()


async def load_unknown_version(world: SimCluster) -> None:
    await world.load_weights(world.topology.primary_rollouters[0], 3)


async def step_without_batch(world: SimCluster) -> None:
    await world.optimizer_step(0)


async def step_before_all_is_trained(world: SimCluster) -> None:
    await world.begin_batch(0, 0, await finished(world, 0))
    await world.optimizer_step(0)


async def train_twice(world: SimCluster) -> None:
    groups = await finished(world, 0)
    await world.begin_batch(0, 0, groups)
    chunks = plan_chunks(groups, (SubStage.ACTOR_UPDATE,), 100)
    await world.train_chunks(world.topology.primary_trainers, chunks, ((),))
    await world.train_chunks(world.topology.primary_trainers, chunks, ((),))


async def train_unfinished(world: SimCluster) -> None:
    await world.begin_batch(0, 0, [new_group(world.prompt(0), 2, 0)])


async def train_while_lent(world: SimCluster) -> None:
    groups = await finished(world, 0)
    await world.switch_in(world.topology.auxiliary_rollouters[0], 0)
    await world.begin_batch(0, 0, groups)


async def train_without_inputs(world: SimCluster) -> None:
    groups = await finished(world, 0)
    await world.begin_batch(0, 0, groups)
    chunks = plan_chunks(groups, (SubStage.OLD_LOGPROB, SubStage.ACTOR_UPDATE), 100)
    await world.train_chunks(world.topology.primary_trainers, chunks[1:], ((),))


@pytest.mark.parametrize(
    ("rule", "number"),
    [
        (generate_on_passive, 4),
        (generate_on_trainer, 4),
        (generate_while_lent, 4),
        (switch_in_twice, 4),
        (switch_in_a_primary, 4),
        (switch_in_over_work, 4),
        (switch_out_a_passive_one, 4),
        (load_over_work, 4),
        (load_unknown_version, 8),
        (step_without_batch, 7),
        (step_before_all_is_trained, 6),
        (train_twice, 6),
        (train_unfinished, 2),
        (train_while_lent, 4),
        (train_without_inputs, 5),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_rules(rule: Rule, number: int) -> None:
    with pytest.raises(InvariantError, match=f"invariant {number}"):
        run(rule)


def test_a_failed_switch_in_rolls_back() -> None:
    async def body(world: SimCluster) -> float:
        (worker,) = world.topology.auxiliary_trainers
        with pytest.raises(SwitchError):
            await world.switch_in(worker, 0)
        assert world.now_seconds() == 1.5
        assert (await finished(world, 0))[0].finished
        await world.switch_in(worker, 0)
        return world.now_seconds()

    run(body, cluster(faults=ScriptedFaults([("switch_in", "*", 0, 1.5)])))


def test_a_worker_lost_while_generating() -> None:
    async def body(world: SimCluster) -> None:
        with pytest.raises(WorkerError, match="generate call 1"):
            await finished(world, 0, 1)

    run(body, cluster(faults=ScriptedFaults([("generate", "rollouter@rollpool:0", 1, 2.0)])))


def test_overhead_of_calls_and_an_interrupt_before_the_engine() -> None:
    timings = SimTimings(rollout=TIMINGS.rollout, generate_overhead_seconds=0.25)

    async def body(world: SimCluster) -> None:
        (worker,) = world.topology.primary_rollouters
        task = asyncio.get_running_loop().create_task(world.generate(worker, new_group(world.prompt(0), 2, 0)))
        await asyncio.sleep(0.1)
        await world.interrupt(worker, (0,))
        report = await task
        assert report.group.num_response_tokens == 0
        assert report.busy_seconds == 0.0
        assert world.now_seconds() == 0.25

    run(body, cluster(timings=timings))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.0, 40.0), max_size=8), st.integers(0, 5), st.floats(0.0, 0.5))
def test_interrupts_resumes_and_loads_conserve_tokens(pauses: list[float], seed: int, noise: float) -> None:
    workload = LognormalWorkload(group_size=3, max_response_tokens=200, median_response_tokens=40.0, seed=seed)
    timings = SimTimings(
        rollout=TIMINGS.rollout, actor_update=SubStageCost(0.1), load_weights_seconds=1.0, rollout_noise=noise
    )

    async def body(world: SimCluster) -> tuple[Group, float]:
        loop, worker = asyncio.get_running_loop(), world.topology.primary_rollouters[0]
        group, generated = new_group(world.prompt(0), 3, 0), 0
        for version, pause in enumerate(pauses):
            task = loop.create_task(world.generate(worker, group))
            await asyncio.sleep(pause)
            await world.interrupt(worker, (0,))
            report = await task
            before, group = group, report.group
            generated += group.num_response_tokens - before.num_response_tokens
            assert report.usage.decode_tokens >= generated
            for old, new in zip(before.samples, group.samples, strict=True):
                assert new.num_tokens >= old.num_tokens
                assert new.spans[: max(0, len(old.spans) - 1)] == old.spans[: max(0, len(old.spans) - 1)]
            world.learner.version = world.learner.exported = version + 1
            await world.load_weights(worker, version + 1)
        group = (await world.generate(worker, group)).group
        return group, world.now_seconds()

    group, seconds = run(body, SimCluster(TWO, workload, timings, seed=seed))
    assert tuple(sample.num_tokens for sample in group.samples) == workload.response_tokens(0)
    assert all(sample.reward in (0.0, 1.0) for sample in group.samples)
    for sample in group.samples:
        assert sample.finish_reason == ("length" if sample.num_tokens == 200 else "stop")
        versions = [span.version for span in sample.spans]
        assert versions == sorted(set(versions))
    assert run(body, SimCluster(TWO, workload, timings, seed=seed)) == (group, seconds)
