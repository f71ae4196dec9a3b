"""Primary trainers of 1, 2 and 4 ranks under every ZeRO stage, against one process in float64."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from bidirl.runtime.language_models.loading import load_causal_lm  # noqa: E402
from bidirl.runtime.learning import prepare_batch  # noqa: E402
from bidirl.runtime.learning.loss import actor_loss  # noqa: E402
from tests.runtime.ray.rank_program import BATCHES, GRPO, make_groups, settings  # noqa: E402

pytestmark = pytest.mark.timeout(300)

CASES = [(0, "fast"), (1, "fast"), (2, "fast"), (0, "exact"), (1, "exact"), (2, "exact"), (3, "fast")]
TOLERANCE = 2e-6
"""Largest difference of a parameter to float64 after three steps that move parameters by 1e-2 each."""


@pytest.fixture(scope="module")
def reference(tiny_model):
    """The parameters after three steps of one process in float64, flat."""
    config = settings(str(tiny_model), 0, "fast")
    model = load_causal_lm(str(tiny_model), "float32").double().eval()
    adam = torch.optim.AdamW(
        model.parameters(), config.learning_rate, eps=config.adam_epsilon, weight_decay=config.weight_decay
    )
    for step in range(len(BATCHES)):
        batch = prepare_batch(make_groups(step), GRPO)
        loss, _ = actor_loss(model, [s for row in batch.sequences for s in row], batch.denominators, GRPO)
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        adam.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


@pytest.fixture(scope="module", params=[1, 2, 4])
def results(request, tiny_model, tmp_path_factory):
    """What every case of one number of ranks ended with, flat, by name."""
    out = tmp_path_factory.mktemp("ranks")
    cores = sorted(os.sched_getaffinity(0))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    programs = []
    for rank in range(request.param):
        spec = {"model": str(tiny_model), "num_ranks": request.param, "port": port, "out": str(out), "cases": CASES}
        file = out / f"spec-{rank}.json"
        file.write_text(json.dumps({**spec, "core": cores[rank % len(cores)]}))
        command = [sys.executable, "-m", "tests.runtime.ray.rank_program", str(file), str(rank)]
        programs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [program.communicate(timeout=280)[0] for program in programs]
    for program, output in zip(programs, outputs, strict=True):
        assert program.returncode == 0, output[-3000:]
    return {f.stem: load_file(f)["data"].view(np.float32) for f in out.glob("*.safetensors")}


@pytest.mark.parametrize(("zero_stage", "merge"), CASES)
def test_three_steps_are_those_of_one_process_in_float64(results, reference, zero_stage, merge):
    assert np.abs(results[f"zero{zero_stage}-{merge}"] - reference).max() < TOLERANCE


@pytest.mark.parametrize(("zero_stage", "merge"), CASES)
def test_a_resumed_trainer_goes_on_with_the_same_bits(results, zero_stage, merge):
    name = f"zero{zero_stage}-{merge}"
    assert results[f"{name}-resumed"].tobytes() == results[name].tobytes()


@pytest.mark.parametrize(("zero_stage", "merge"), CASES)
def test_a_checkpoint_can_be_read_under_another_stage(results, reference, zero_stage, merge):
    assert np.abs(results[f"zero{zero_stage}-{merge}-moved"] - reference).max() < TOLERANCE
