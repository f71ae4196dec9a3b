"""Real engines: rollout, interruption, borrowing both ways, exact gradients, and workers that die."""

from __future__ import annotations

import asyncio
import os
import signal

import numpy as np
import psutil
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("vllm")
pytest.importorskip("deepspeed")

from bidirl.core.chunks import plan_chunks  # noqa: E402
from bidirl.core.errors import InvariantError, LearnerLost, SwitchError, WorkerError  # noqa: E402
from bidirl.core.groups import new_group  # noqa: E402
from bidirl.core.topology import build_topology  # noqa: E402
from bidirl.runtime.learning import GrpoConfig, prepare_batch, sub_stages  # noqa: E402
from bidirl.runtime.ray.cluster import RayCluster  # noqa: E402
from bidirl.runtime.ray.config import RayConfig  # noqa: E402
from tests.runtime.conftest import ParityTask  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

GRPO = GrpoConfig(proximal="recomputed", importance_cap=5.0, kl_coefficient=0.05)


@pytest.fixture(scope="module")
def config(tiny_model):
    return RayConfig(
        model=str(tiny_model),
        gradient_merge="exact",
        learning_rate=1e-3,
        grad_clip=0.0,
        max_response_tokens=48,
        max_num_seqs=16,
        kv_cache_gib=0.25,
        object_store_gib=0.5,
        verb_timeout_seconds=60.0,
    )


@pytest.fixture(scope="module")
def cluster(config, runner):
    value = RayCluster(build_topology(1, 1), config, GRPO, ParityTask())
    runner.run(value.start())
    yield value
    runner.run(value.close())
    assert psutil.Process().children(recursive=True) == []


def workers(cluster):
    t = cluster.topology
    return t.primary_rollouters[0], t.primary_trainers[0], t.auxiliary_rollouters[0], t.auxiliary_trainers[0]


async def interrupted(cluster, worker, group, seconds=0.03):
    """The group after ``seconds`` of generation."""
    task = asyncio.create_task(cluster.generate(worker, group))
    await asyncio.sleep(seconds)
    await cluster.interrupt(worker, [group.group_id])
    return (await task).group


def assert_same(left, right):
    for a, b in zip(left.samples, right.samples, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert a.logprobs.tobytes() == b.logprobs.tobytes()
        assert (a.finish_reason, a.reward) == (b.finish_reason, b.reward)


def test_a_group_is_the_same_bits_alone_in_a_batch_and_resumed_elsewhere(cluster, runner):
    roll, _, aux_roll, _ = workers(cluster)

    async def scenario():
        fresh = [new_group(cluster.prompt(g), 4, 0) for g in range(4)]
        together = [r.group for r in await asyncio.gather(*(cluster.generate(roll, g) for g in fresh))]
        alone = (await cluster.generate(roll, fresh[2])).group
        prefix = await interrupted(cluster, roll, fresh[2])
        assert not prefix.finished and prefix.num_interruptions == 1
        assert 0 < prefix.num_response_tokens < alone.num_response_tokens
        assert await cluster.switch_in(aux_roll, 0) == 0
        resumed = (await cluster.generate(aux_roll, prefix)).group
        await cluster.switch_out(aux_roll)
        return together[2], alone, resumed

    together, alone, resumed = runner.run(scenario())
    assert_same(together, alone)
    assert_same(together, resumed)
    assert len({s.token_ids.tobytes() for s in together.samples}) == 4
    for sample in together.samples:
        sample.check()
        assert sample.num_tokens <= 48
        assert sample.finish_reason == "stop" or sample.num_tokens == 48


def test_usage_counts_every_token(cluster, runner):
    roll, *_ = workers(cluster)
    before = runner.run(cluster.generate(roll, new_group(cluster.prompt(50), 2, 0)))
    after = runner.run(cluster.generate(roll, new_group(cluster.prompt(51), 4, 0)))
    delta, lengths = after.usage - before.usage, [s.num_tokens for s in after.group.samples]
    assert delta.prefill_tokens == 4 * 12
    assert delta.decode_tokens == sum(lengths)
    assert delta.decode_steps == pytest.approx(max(lengths), abs=2)
    assert delta.context_token_steps == sum(12 * n + n * (n - 1) // 2 for n in lengths)
    assert after.busy_seconds > before.busy_seconds


def test_interrupting_before_the_first_token_loses_nothing(cluster, runner):
    roll, *_ = workers(cluster)
    group = new_group(cluster.prompt(60), 4, 0)
    assert runner.run(interrupted(cluster, roll, group, seconds=0.0)).num_response_tokens <= 8
    runner.run(cluster.interrupt(roll, [60, 999]))


def test_passive_workers_are_refused(cluster, runner):
    roll, _, aux_roll, aux_train = workers(cluster)
    with pytest.raises(InvariantError, match="rollouter@trainpool:0, which is passive"):
        runner.run(cluster.generate(aux_roll, new_group(cluster.prompt(0), 1, 0)))
    with pytest.raises(WorkerError, match="version 7 was asked for"):
        runner.run(cluster.load_weights(roll, 7))
    assert not aux_train.primary


def test_a_switch_in_that_fails_is_undone(cluster, runner):
    roll, train, _, aux_train = workers(cluster)

    async def scenario():
        task = asyncio.create_task(cluster.generate(roll, new_group(cluster.prompt(70), 8, 0)))
        await asyncio.sleep(0.02)
        with pytest.raises(SwitchError, match="trainer@rollpool:0 failed and was undone: rollouter@rollpool:0"):
            await cluster.switch_in(aux_train, 0)
        assert (await task).group.finished
        with pytest.raises(SwitchError, match="version 9 was asked for"):
            await cluster.switch_in(aux_train, 9)
        return (await cluster.generate(roll, new_group(cluster.prompt(71), 2, 0))).group.finished

    assert runner.run(scenario())
    assert train.primary


def oracle_step(config, groups, model):
    """One process, one sequence after another, float64 sums; the step is plain AdamW."""
    from bidirl.runtime.learning.logprobs import sequence_logprobs
    from bidirl.runtime.learning.loss import actor_loss

    batch = prepare_batch(groups, GRPO)
    reference = [p.detach().clone() for p in model.reference.parameters()]
    optimizer = model.optimizer
    sums = [torch.zeros_like(p, dtype=torch.float64) for p in model.parameters]
    for sequence in (s for row in reversed(batch.sequences) for s in row):
        with torch.no_grad():
            old, ref = (sequence_logprobs(m, [sequence]) for m in (model.module, model.reference))
        loss, _ = actor_loss(model.module, [sequence], batch.denominators, GRPO, old, ref)
        if loss.requires_grad:
            for total, gradient in zip(sums, torch.autograd.grad(loss, model.parameters), strict=True):
                total += torch.round(gradient.double() * 2.0**44) / 2.0**44
    for parameter, total in zip(model.parameters, sums, strict=True):
        parameter.grad = total.float()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(reference, model.reference.parameters(), strict=True))


async def one_step(cluster, step, split, max_tokens):
    """Roll out, train with chunks placed by ``split`` (part → on the auxiliary?), publish."""
    roll, train, _, aux_train = workers(cluster)
    fresh = [new_group(cluster.prompt(100 + 4 * step + g), 4, step) for g in range(4)]
    groups = [r.group for r in await asyncio.gather(*(cluster.generate(roll, g) for g in fresh))]
    assert {s.version for g in groups for sample in g.samples for s in sample.spans} == {step}
    info = await cluster.begin_batch(step, step, groups)
    assert info.num_trainable_tokens > 0
    assert await cluster.switch_in(aux_train, step) == step
    chunks = plan_chunks(groups, sub_stages(GRPO), max_tokens)
    parts, results = len(chunks) // 3, {}
    for chunk in chunks:
        inputs = [results[i] for i in range(chunk.part, chunk.chunk_id, parts)]
        worker = aux_train if split(chunk.part) else train
        report = await cluster.train_chunks((worker,), (chunk,), (inputs,))
        results[chunk.chunk_id] = report.results[0]
    if any(split(part) for part in range(parts)):
        with pytest.raises(InvariantError, match="merged"):
            await cluster.optimizer_step(step)
        await cluster.merge_gradients((aux_train,))
    await cluster.switch_out(aux_train)
    metrics = await cluster.optimizer_step(step)
    await cluster.export_weights(step + 1)
    assert await cluster.load_weights(roll, step + 1) == step + 1
    return groups, metrics


@pytest.fixture(scope="module")
def oracle(config):
    from bidirl.runtime.ray.trainer_model import TrainerModel

    torch.set_num_threads(1)
    model = TrainerModel(config, GRPO, torch.device("cpu"))
    model.optimizer = torch.optim.AdamW(model.parameters, lr=1e-3, weight_decay=0.0, fused=True)
    return model


def test_training_is_the_same_bits_as_one_process_however_chunks_are_placed(cluster, config, runner, oracle):
    placements = [(lambda part: part % 2 == 1, 150), (lambda part: False, 10_000), (lambda part: True, 1)]
    for step, (split, max_tokens) in enumerate(placements):
        groups, metrics = runner.run(one_step(cluster, step, split, max_tokens))
        oracle_step(config, groups, oracle)
        import ray

        weights = ray.get(cluster._weights[step + 1])
        assert weights.data.tobytes() == oracle.export(step + 1).data.tobytes(), f"step {step}"
        assert np.isfinite(metrics["actor/grad_norm"]) and metrics["actor/grad_norm"] > 0
        assert metrics["actor/behaviour_kl"] == pytest.approx(0.0, abs=1e-5)


def test_a_worker_that_dies_ends_the_call_with_its_name(cluster, runner):
    """Last: the cluster is not usable afterwards."""
    roll, train, _, _ = workers(cluster)

    async def killed(worker, process_id, verb):
        task = asyncio.create_task(verb)
        await asyncio.sleep(0.05)
        os.kill(process_id, signal.SIGKILL)
        with pytest.raises(WorkerError, match=worker.name):
            await asyncio.wait_for(task, 20)

    engine = cluster._fleet[roll].process_ids[1]
    runner.run(killed(roll, engine, cluster.generate(roll, new_group(cluster.prompt(200), 8, 3))))
    trainer = cluster._fleet[train].process_ids[0]
    os.kill(trainer, signal.SIGKILL)
    with pytest.raises(LearnerLost, match=r"trainer@trainpool:0 (died|was lost)"):
        runner.run(cluster.export_weights(3))
