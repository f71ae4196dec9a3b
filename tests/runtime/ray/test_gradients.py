"""Exact sums do not depend on order; fast sums are ordinary float32."""

import pytest

torch = pytest.importorskip("torch")

from bidirl.runtime.ray.gradients import GradientSum  # noqa: E402

SHAPES = [torch.Size([7, 5]), torch.Size([3])]


def pieces(count, scale=1.0):
    generator = torch.Generator().manual_seed(1)
    return [[torch.randn(shape, generator=generator) * scale for shape in SHAPES] for _ in range(count)]


def total(parts, exact):
    gradients = GradientSum(SHAPES, exact, torch.device("cpu"))
    for part in parts:
        gradients.add(part)
    return gradients


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_exact_sums_are_the_same_bits_in_any_order_and_on_any_replicas(scale):
    parts = pieces(64, scale)
    expected = total(parts, True).flat
    assert torch.equal(expected, total(parts[::-1], True).flat)
    first, second = total(parts[::3], True), total(parts[1::3] + parts[2::3], True)
    first.add_flat(second.flat)
    assert torch.equal(expected, first.flat)


def test_fast_sums_are_close():
    parts = pieces(16)
    expected = [sum(p[i] for p in parts) for i in range(2)]
    for ours, theirs in zip(total(parts, False).per_parameter(), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_nothing_added_is_zero():
    assert all(not part.any() for part in total([], True).per_parameter())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e4])
def test_exact_refuses_what_it_cannot_represent(value):
    with pytest.raises(ArithmeticError, match="exact merging"):
        total([[torch.full(shape, value) for shape in SHAPES]], True).per_parameter()
