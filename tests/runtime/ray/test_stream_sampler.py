"""The sampler draws from the model's distribution, row by row."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def sampler_module():
    from bidirl.runtime.ray import stream_sampler

    return stream_sampler


@pytest.mark.parametrize("vocabulary", [3, 64, 256, 600, 1000])
def test_draws_follow_the_distribution(sampler_module, vocabulary):
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(vocabulary, generator=generator) * 2
    count = 40_000
    draws = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    chosen = sampler_module.choose(logits.expand(count, -1), draws)
    shares = torch.bincount(chosen, minlength=vocabulary) / count
    assert float((shares - torch.softmax(logits, -1)).abs().max()) < 2 / count + 1e-4


def test_impossible_tokens_are_never_drawn(sampler_module):
    logits = torch.full((1000, 700), -torch.inf)
    logits[:, 300] = 0.0
    chosen = sampler_module.choose(logits, (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000)
    assert set(chosen.tolist()) == {300}


def test_a_row_does_not_depend_on_its_neighbours(sampler_module):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(24, 777, generator=generator)
    draws = torch.rand(24, dtype=torch.float64, generator=generator)
    together = sampler_module.choose(logits, draws)
    alone = [int(sampler_module.choose(logits[i : i + 1], draws[i : i + 1])) for i in range(24)]
    assert together.tolist() == alone


def test_requests_that_move_keep_their_stream(sampler_module):
    kinds = sampler_module.MoveDirectionality
    sampler = sampler_module.StreamSampler(None, torch.device("cpu"), False)
    params = [SimpleNamespace(extra_args={"bidirl_key": 11 + i, "bidirl_start": i}) for i in range(2)]
    other = SimpleNamespace(extra_args=None)
    added = [(0, params[0], None, []), (1, params[1], None, [5]), (2, other, None, [])]
    sampler.update_state(SimpleNamespace(removed=[], added=added, moved=[]))
    logits = torch.zeros(3, 64)
    first = sampler.apply(logits.clone()).argmax(-1)
    sampler.update_state(SimpleNamespace(removed=[], added=[], moved=[(0, 1, kinds.SWAP)]))
    assert sampler.apply(logits.clone()).argmax(-1)[:2].tolist() == first[:2].tolist()[::-1]
    assert np.isfinite(sampler.apply(logits.clone())[2]).all()
    sampler.update_state(SimpleNamespace(removed=[0], added=[], moved=[(1, 0, kinds.UNIDIRECTIONAL)]))
    assert int(sampler.apply(logits[:1].clone()).argmax(-1)) == int(first[0])
