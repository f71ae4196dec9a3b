"""The roofline against the figures that CONSTANTS.md states, and that every constant carries its source."""

from __future__ import annotations

from dataclasses import fields

import pytest

from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.models.hardware import GPUS, gpu
from bidirl.models.llm import LLMS, llm
from bidirl.models.roofline import decode_tokens_per_second, kv_token_capacity, logprob_cost, update_cost
from bidirl.models.roofline_switch import switch_cost

STATED_PARAMS = {
    "qwen3-0.6b": (0.596, 112),
    "qwen3-1.7b": (1.721, 112),
    "qwen3-4b": (4.022, 144),
    "qwen3-8b": (8.191, 144),
    "qwen3-14b": (14.768, 160),
    "qwen3-32b": (32.762, 256),
    "qwen2.5-0.5b": (0.494, 12),
    "qwen2.5-1.5b": (1.544, 28),
    "qwen2.5-3b": (3.086, 36),
    "qwen2.5-7b": (7.616, 56),
    "qwen3-vl-2b": (2.128, 112),
    "qwen3-vl-4b": (4.438, 144),
    "qwen3-vl-8b": (8.767, 144),
}


@pytest.mark.parametrize("name", LLMS)
def test_parameters_and_kv_bytes_are_the_stated_ones(name: str) -> None:
    billions, kib = STATED_PARAMS[name]
    assert llm(name).params / 1e9 == pytest.approx(billions, abs=6e-4)
    assert llm(name).kv_bytes_per_token == kib * 1024


@pytest.mark.parametrize(
    ("device", "stated"),
    [("a6000", (3364, 2082, 1415)), ("h100", (14674, 9081, 6174)), ("h200", (21025, 13011, 8847))],
)
def test_decode_throughput_is_the_stated_one(device: str, stated: tuple[int, ...]) -> None:
    for name, expected in zip(("qwen3-vl-2b", "qwen3-vl-4b", "qwen3-8b"), stated, strict=True):
        assert decode_tokens_per_second(gpu(device), llm(name), 64, 1024) == pytest.approx(expected, rel=5e-4)


@pytest.mark.parametrize("device", GPUS.values(), ids=GPUS)
def test_every_gpu_constant_has_a_source(device: object) -> None:
    constants = {f.name for f in fields(device)} - {"name", "sources"}  # type: ignore[arg-type]
    assert set(device.sources) == constants  # type: ignore[attr-defined]
    assert all(device.sources.values())  # type: ignore[attr-defined]


def test_table5_is_used_as_printed_and_only_there() -> None:
    printed = switch_cost(Direction.TRAINER_ON_ROLLPOOL, gpu("a6000"), llm("qwen3-vl-4b"))
    assert (printed.cost.in_seconds, printed.cost.out_seconds, printed.cost.grad_seconds) == (6.16, 5.62, 1.21)
    assert not printed.extrapolated
    for device, model in (("a6000", "qwen3-8b"), ("h100", "qwen3-vl-4b")):
        for direction in Direction:
            other = switch_cost(direction, gpu(device), llm(model))
            assert other.extrapolated
            assert "EXTRAPOLATED" in other.source


def test_extrapolated_switch_costs_grow_with_the_model() -> None:
    for direction in Direction:
        names = ("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-32b")
        costs = [switch_cost(direction, gpu("a6000"), llm(name)).cost.in_seconds for name in names]
        assert costs == sorted(costs)
        assert costs[0] > 0


def test_a_logprob_pass_is_a_third_of_the_update_and_devices_share_it() -> None:
    update = update_cost(gpu("h100"), llm("qwen3-8b"))
    assert logprob_cost(update).seconds(5000) == pytest.approx(update.seconds(5000) / 3)
    assert update_cost(gpu("h100"), llm("qwen3-8b"), 4).ktoken_seconds == pytest.approx(update.ktoken_seconds / 4)


def test_training_throughput_is_the_published_one() -> None:
    """EasyR1, 7B on 8 × H100: 1,200 tokens/s and GPU over the whole step (180 s, 13.6%): the update alone is faster."""
    tokens_per_second = 1000 / update_cost(gpu("h100"), llm("qwen2.5-7b")).ktoken_seconds
    assert 1200 < tokens_per_second < 3 * 1200


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        kv_token_capacity(gpu("a6000"), llm("qwen3-32b"))
    assert kv_token_capacity(gpu("a6000"), llm("qwen3-32b"), 2) > 0
    with pytest.raises(ConfigError, match="gpu is 'b100': use one of a6000"):
        gpu("b100")
    with pytest.raises(ConfigError, match="model is"):
        llm("gpt")
    with pytest.raises(ConfigError, match="training_mfu"):
        update_cost(gpu("h100"), llm("qwen3-8b"), training_mfu=0.0)
