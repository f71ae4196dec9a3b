"""The analytic replica against the token-by-token oracle, exactly: all durations are dyadic, so floats do not round."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from bidirl.core.cluster import RolloutReport
from bidirl.core.groups import Prompt, new_group
from bidirl.models.sim_timings import RolloutTimings
from bidirl.runtime.sim.replica import SimReplica
from bidirl.runtime.sim.virtual_time import run_virtual
from tests.runtime.sim.oracle import Action, Oracle

TICK = 1 / 64


@dataclass
class Script:
    timings: RolloutTimings
    max_num_seqs: int
    kv_tokens: int | None
    actions: list[Action]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    ticks = st.integers(0, 8)
    timings = RolloutTimings(
        draw(st.sampled_from([0, 1, 4, 8])) * TICK,
        draw(st.integers(1, 8)) * TICK,
        draw(ticks) * TICK,
        draw(st.integers(0, 3)) * TICK / 8,
    )
    num_groups = draw(st.integers(1, 5))
    actions = []
    for group_id in range(num_groups):
        targets = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=4)))
        start = draw(st.integers(0, 3000))
        actions.append(Action(start * TICK, group_id, draw(st.integers(1, 12)), targets))
        if draw(st.booleans()):
            actions.append(Action((start + 1 + draw(st.integers(0, 2000))) * TICK, group_id))
    for number, action in enumerate(actions):  # no two actions and no boundary coincide
        action.seconds += (2 * number + 1) / 2**20
    return Script(timings, draw(st.integers(1, 6)), draw(st.none() | st.integers(20, 80)), actions)


def play(script: Script) -> tuple[SimReplica, dict[int, RolloutReport], dict[int, float]]:
    replica = SimReplica(script.timings, script.max_num_seqs, script.kv_tokens)
    reports: dict[int, RolloutReport] = {}
    ended: dict[int, float] = {}

    async def generate(action: Action, targets: tuple[int, ...]) -> None:
        group = new_group(Prompt(action.group_id, action.prompt), len(targets), 0)
        reports[action.group_id] = await replica.generate(group, targets, 30, [1.0] * len(targets))
        ended[action.group_id] = asyncio.get_running_loop().time()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        for action in sorted(script.actions, key=lambda action: action.seconds):
            await asyncio.sleep(action.seconds - loop.time())
            assert loop.time() == action.seconds
            if action.targets is None:
                replica.interrupt((action.group_id,))
            else:
                tasks.append(loop.create_task(generate(action, action.targets)))
        await asyncio.gather(*tasks)

    run_virtual(main())
    return replica, reports, ended


@settings(max_examples=400, deadline=None)
@given(scripts())
def test_equals_the_token_by_token_oracle(script: Script) -> None:
    replica, reports, ended = play(script)
    oracle = Oracle(script.timings, script.max_num_seqs, script.kv_tokens)
    oracle.run(list(script.actions))
    assert ended == oracle.ended
    for group_id, report in reports.items():
        for index, sample in enumerate(report.group.samples):
            assert sample.num_tokens == oracle.generated[group_id, index]
    usage = replica.usage
    assert (usage.decode_steps, usage.decode_tokens) == (oracle.steps, oracle.tokens)
    assert (usage.prefill_tokens, usage.context_token_steps) == (oracle.prefill, oracle.context_steps)
    assert replica.busy_seconds == oracle.busy


@settings(max_examples=200, deadline=None)
@given(scripts())
def test_busy_seconds_are_the_usage_at_cost(script: Script) -> None:
    replica, reports, _ = play(script)
    for report in reports.values():
        assert script.timings.seconds(report.usage) == report.busy_seconds
    assert script.timings.seconds(replica.usage) == replica.busy_seconds
    assert replica.idle


@settings(max_examples=200, deadline=None)
@given(scripts())
def test_uninterrupted_samples_reach_their_targets(script: Script) -> None:
    _, reports, _ = play(script)
    interrupted = {action.group_id for action in script.actions if action.targets is None}
    for action in script.actions:
        if action.targets is None:
            continue
        samples = reports[action.group_id].group.samples
        for sample, target in zip(samples, action.targets, strict=True):
            assert sample.num_tokens <= target
            assert sample.finished == (sample.num_tokens == target)
            assert sample.reward == (1.0 if sample.finished else None)
            assert action.group_id in interrupted or sample.finished


def test_a_long_decode_is_one_event() -> None:
    timings = RolloutTimings(1e-4, 5e-3, 1e-5, 1e-8)

    async def main() -> float:
        replica = SimReplica(timings, 8)
        await replica.generate(new_group(Prompt(0, 100), 1, 0), (10_000_000,), 10_000_000, (0.0,))
        assert replica.usage.decode_steps == 10_000_000
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) > 50_000


def test_a_cancelled_call_leaves_the_engine() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        replica = SimReplica(RolloutTimings(0.0, 1.0), 8)
        task = loop.create_task(replica.generate(new_group(Prompt(0, 5), 2, 0), (50, 60), 99, (0.0, 0.0)))
        await asyncio.sleep(2.5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert loop.time() == 2.5
        await asyncio.sleep(0.5)
        assert replica.idle
        assert replica.usage.decode_tokens == 6

    run_virtual(main())
