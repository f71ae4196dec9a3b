"""One rank of a group of primary trainers without Ray: ``python -m tests.runtime.ray.rank_program SPEC RANK``.

For every case of the JSON file SPEC it trains three batches and leaves a checkpoint after the second, from which new
trainers go on, one of them under another ZeRO stage. Rank 0 writes what each ended with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bidirl.core.chunks import plan_chunks
from bidirl.core.groups import Group, Prompt, Sample, VersionSpan
from bidirl.runtime.learning import GrpoConfig, prepare_batch, sub_stages
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.ray.process import enter_worker_process

GRPO = GrpoConfig()
BATCHES = ((3, 64), (1, 10_000), (4, 96))
"""Groups and tokens per chunk of each batch: many chunks, one chunk for all ranks, and an uneven number again."""


def settings(model: str, zero_stage: int, merge: str) -> RayConfig:
    """A rate at which three steps move the parameters, and an epsilon that does not magnify rounding."""
    return RayConfig(
        model=model,
        zero_stage=zero_stage,
        gradient_merge=merge,
        learning_rate=1e-2,
        adam_epsilon=1e-4,
        weight_decay=0.1,
        grad_clip=0.05,
    )


def make_groups(step: int) -> list[Group]:
    """Groups of three samples of very different lengths; one has no response, one group has equal rewards."""
    dice = np.random.default_rng(step)
    groups = []
    for g in range(BATCHES[step][0]):
        samples = []
        for i, length in enumerate((0 if g == 1 else 3, int(dice.integers(5, 30)), 40)):
            tokens = dice.integers(2, 64, length).astype(np.int32)
            logprobs = (-4.0 + 0.1 * dice.standard_normal(length)).astype(np.float32)
            spans = (VersionSpan(step, length),) if length else ()
            samples.append(Sample(spans, tokens, logprobs, "stop", 1.0 if g == 2 else float(i == 1)))
        prompt = dice.integers(2, 64, 8).astype(np.int32)
        groups.append(Group(Prompt(g, 8, prompt), tuple(samples), step, 0))
    return groups


def train(trainer, step: int, rank: int, num_ranks: int) -> None:
    """One batch, dealt over the ranks as the cluster does."""
    groups = make_groups(step)
    chunks = plan_chunks(groups, sub_stages(GRPO), BATCHES[step][1], num_ranks)
    mine = list(chunks[rank::num_ranks])
    mine += [None] * (-(-len(chunks) // num_ranks) - len(mine))
    trainer.begin_batch(step)
    trainer.run(prepare_batch(groups, GRPO), mine, [[]] * len(mine))
    trainer.step()


def main(spec_file: str, rank: int) -> None:
    spec = json.loads(Path(spec_file).read_text())
    num_ranks = spec["num_ranks"]
    enter_worker_process(settings(spec["model"], 0, "fast"), (0,), (spec["core"],), (rank, num_ranks, spec["port"]))
    import torch

    from bidirl.runtime.ray.trainer_engine import PrimaryTrainer

    def make(zero_stage: int, merge: str) -> PrimaryTrainer:
        return PrimaryTrainer(settings(spec["model"], zero_stage, merge), GRPO, torch.device("cpu"), rank, num_ranks)

    def write(trainer: PrimaryTrainer, name: str) -> None:
        data = trainer.export().data
        if rank == 0:
            save_file({"data": data}, Path(spec["out"]) / f"{name}.safetensors")

    for zero_stage, merge in spec["cases"]:
        name = f"zero{zero_stage}-{merge}"
        checkpoint = Path(spec["out"]) / name
        if rank == 0:
            checkpoint.mkdir()
        torch.set_num_threads(1)
        trainer = make(zero_stage, merge)
        for step in range(len(BATCHES)):
            if step == 2:
                trainer.save(checkpoint)
                torch.distributed.barrier()
            train(trainer, step, rank, num_ranks)
        write(trainer, name)
        for stage, target in ((zero_stage, f"{name}-resumed"), ((zero_stage + 1) % 3, f"{name}-moved")):
            resumed = make(stage, merge)
            assert resumed.restore(checkpoint) == 2
            train(resumed, 2, rank, num_ranks)
            write(resumed, target)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
