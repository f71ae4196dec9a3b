"""The chunked float32-capable loss against a plain float64 reference that sees one sequence at a time, unpadded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bidirl.runtime.learning import GrpoConfig, PreparedBatch, TrainSequence, prepare_batch, step_metrics
from bidirl.runtime.learning.logprobs import sequence_logprobs
from bidirl.runtime.learning.loss import actor_loss
from tests.runtime.learning.helpers import make_group, make_sample, tiny_qwen3

MODEL = tiny_qwen3()
OLD, REFERENCE = tiny_qwen3(seed=1), tiny_qwen3(seed=2)
for _parameter, _start in zip(OLD.parameters(), MODEL.parameters(), strict=True):
    _parameter.data = 0.7 * _start.data + 0.3 * _parameter.data

shapes = st.lists(
    st.tuples(
        st.integers(1, 6),
        st.lists(st.tuples(st.integers(0, 8), st.sampled_from([0.0, 0.5, 1.0, None])), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=3,
)
configs = st.builds(
    lambda aggregation, kl, proximal, cap: GrpoConfig(
        aggregation=aggregation, kl_coefficient=kl, proximal=proximal, clip_high=0.3,
        importance_cap=cap if proximal == "recomputed" else None,
    ),
    st.sampled_from(["token_mean", "sequence_mean"]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from(["behaviour", "recomputed"]),
    st.sampled_from([None, 1.1]),
)  # fmt: skip


def plain_logprobs(model: torch.nn.Module, sequence: TrainSequence) -> torch.Tensor:
    ids = torch.as_tensor(sequence.token_ids).long()
    table = torch.log_softmax(model(input_ids=ids[None], use_cache=False).logits[0], dim=-1)
    return torch.stack([table[t - 1, ids[t]] for t in range(sequence.prompt_len, len(ids))])


def reference_loss(batch: PreparedBatch, config: GrpoConfig) -> torch.Tensor:
    """The formula at the top of loss.py, token by token."""
    per_sequence: list[list[torch.Tensor]] = []
    for sequence in (s for row in batch.sequences for s in row if s.response_len):
        new = plain_logprobs(MODEL, sequence)
        old, ref = plain_logprobs(OLD, sequence).detach(), plain_logprobs(REFERENCE, sequence).detach()
        terms = []
        for t in np.flatnonzero(sequence.mask):
            behaviour = torch.tensor(float(sequence.behaviour_logprobs[t]), dtype=torch.float64)
            proximal = old[t] if config.proximal == "recomputed" else behaviour
            weight = torch.exp(proximal - behaviour)
            if config.importance_cap is not None:
                weight = min(weight, torch.tensor(config.importance_cap, dtype=torch.float64))
            ratio = torch.exp(new[t] - proximal)
            surrogate = min(
                ratio * sequence.advantage,
                ratio.clamp(1 - config.clip_low, 1 + config.clip_high) * sequence.advantage,
            )
            gap = ref[t] - new[t]
            terms.append(-weight * surrogate + config.kl_coefficient * (torch.exp(gap) - gap - 1))
        per_sequence.append(terms)
    if config.aggregation == "token_mean":
        flat = [term for terms in per_sequence for term in terms]
        return sum(flat) / len(flat)
    means = [sum(terms) / len(terms) for terms in per_sequence if terms]
    return sum(means) / len(means)


def run_chunk(sequences: tuple[TrainSequence, ...], batch: PreparedBatch, config: GrpoConfig) -> dict[str, float]:
    with torch.no_grad():
        old = sequence_logprobs(OLD, sequences) if config.proximal == "recomputed" else None
        ref = sequence_logprobs(REFERENCE, sequences) if config.kl_coefficient else None
    loss, metrics = actor_loss(MODEL, sequences, batch.denominators, config, old, ref)
    if loss.requires_grad:
        loss.backward()
    return metrics


def gradients() -> list[torch.Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in MODEL.parameters()]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(shapes, configs, st.randoms(use_true_random=False), st.integers(0, 1000))
def test_any_chunking_and_order_gives_the_full_batch_gradient(
    shape: list[tuple[int, list[tuple[int, float | None]]]], config: GrpoConfig, random: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    batch = prepare_batch([make_group(g, n, samples, rng) for g, (n, samples) in enumerate(shape)], config)
    MODEL.zero_grad()
    if batch.denominators.num_tokens:
        reference = reference_loss(batch, config)
        reference.backward()
    expected = gradients()
    MODEL.zero_grad()
    order = [sequence for row in batch.sequences for sequence in row]
    random.shuffle(order)
    cuts = sorted([0, len(order), *(random.randint(0, len(order)) for _ in range(3))])
    rows = [run_chunk(tuple(order[a:b]), batch, config) for a, b in pairwise(cuts)]
    for got, want in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
    if batch.denominators.num_tokens:
        assert step_metrics(rows)["actor/loss"] == pytest.approx(reference.item(), rel=1e-9, abs=1e-12)


def trained_gradient(advantage: float, shift: float, **settings_: Any) -> tuple[float, dict[str, float]]:
    """Gradient norm when the behaviour policy gave every token ``shift`` less log-prob than the model does."""
    config = GrpoConfig(**settings_)
    rng = np.random.default_rng(5)
    group = make_group(0, 3, [(4, advantage), (4, 0.0)], rng)
    prepared = prepare_batch([group], config)
    first = prepared.sequences[0][0]
    with torch.no_grad():
        logprobs = plain_logprobs(MODEL, first).numpy() - shift
    sequence = TrainSequence(
        first.token_ids, 3, logprobs.astype(np.float32), first.mask, advantage, 0, 0
    )  # fmt: skip
    MODEL.zero_grad()
    metrics = run_chunk((sequence,), prepared, config)
    return float(sum(g.abs().sum() for g in gradients())), metrics


@pytest.mark.parametrize(
    ("advantage", "shift", "clipped"),
    [(1.0, 0.3, True), (-1.0, -0.3, True), (1.0, -0.3, False), (-1.0, 0.3, False), (1.0, 0.1, False)],
)
def test_clipping_bites_where_the_ratio_left_the_trust_region(advantage: float, shift: float, clipped: bool) -> None:
    norm, metrics = trained_gradient(advantage, shift)
    assert (norm == 0.0) == clipped
    kind = "clip_high_fraction" if advantage > 0 else "clip_low_fraction"
    assert step_metrics([metrics])[f"actor/{kind}"] == float(clipped)


def test_clip_higher_moves_only_the_upper_limit() -> None:
    assert trained_gradient(1.0, 0.3, clip_high=0.5)[0] > 0
    assert trained_gradient(-1.0, -0.3, clip_high=0.5)[0] == 0


def test_decoupled_weight_is_capped() -> None:
    rng = np.random.default_rng(0)
    config = GrpoConfig(proximal="recomputed", importance_cap=0.5)
    batch = prepare_batch([make_group(0, 2, [(5, 1.0), (5, 0.0)], rng)], config)
    low = tuple(
        TrainSequence(s.token_ids, s.prompt_len, s.behaviour_logprobs - 9, s.mask, s.advantage, 0, s.sample_index)
        for s in batch.sequences[0]
    )
    assert step_metrics([run_chunk(low, batch, config)])["actor/importance_weight"] == pytest.approx(0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logprobs_are_float32_for_narrow_models_and_ignore_padding(dtype: torch.dtype) -> None:
    model = tiny_qwen3().to(dtype)
    rng = np.random.default_rng(1)
    row = prepare_batch([make_group(0, 4, [(7, 1.0), (2, 0.0), (0, 0.5)], rng)], GrpoConfig()).sequences[0]
    together = sequence_logprobs(model, row, pad_token_id=3)
    assert [len(values) for values in together] == [7, 2, 0]
    assert together[0].dtype is torch.float32
    tolerance = 1e-5 if dtype is torch.float32 else 0.05
    for values, sequence in zip(together, row, strict=True):
        (alone,) = sequence_logprobs(model, [sequence])
        torch.testing.assert_close(values, alone, rtol=0, atol=tolerance)


def test_temperature_divides_the_logits() -> None:
    row = prepare_batch([make_group(0, 2, [(3, 1.0)], np.random.default_rng(2))], GrpoConfig()).sequences[0]
    ids = torch.as_tensor(row[0].token_ids).long()
    table = torch.log_softmax(MODEL(input_ids=ids[None]).logits[0] / 0.5, dim=-1)
    (values,) = sequence_logprobs(MODEL, row, temperature=0.5)
    torch.testing.assert_close(values, table[torch.arange(1, 4), ids[2:]])


def test_a_wild_behaviour_logprob_stays_finite() -> None:
    norm, metrics = trained_gradient(-1.0, 500.0)
    assert np.isfinite(norm) and all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(("proximal", "kl"), [("recomputed", 0.0), ("behaviour", 0.1)])
def test_missing_inputs_are_refused(proximal: Literal["behaviour", "recomputed"], kl: float) -> None:
    config = GrpoConfig(proximal=proximal, kl_coefficient=kl)
    batch = prepare_batch([make_group(0, 2, [(3, 1.0), (3, 0.0)], np.random.default_rng(0))], config)
    with pytest.raises(ValueError, match="needed"):
        actor_loss(MODEL, batch.sequences[0], batch.denominators, config)


def test_unused_or_misshapen_inputs_are_refused() -> None:
    batch = prepare_batch([make_group(0, 2, [(3, 1.0), (3, 0.0)], np.random.default_rng(0))], GrpoConfig())
    logprobs = [torch.zeros(3), torch.zeros(2)]
    with pytest.raises(ValueError, match="ignored"):
        actor_loss(MODEL, batch.sequences[0], batch.denominators, GrpoConfig(), logprobs)
    with pytest.raises(ValueError, match="response length"):
        actor_loss(MODEL, batch.sequences[0], batch.denominators, GrpoConfig(proximal="recomputed"), logprobs)


def test_a_chunk_without_trainable_tokens_still_has_a_backward() -> None:
    rng = np.random.default_rng(0)
    group = make_group(0, 2, [(3, None), (3, None)], rng)
    batch = prepare_batch([group], GrpoConfig())
    MODEL.zero_grad()
    loss, metrics = actor_loss(MODEL, batch.sequences[0], batch.denominators, GrpoConfig())
    loss.backward()
    assert all(not gradient.any() for gradient in gradients())
    assert step_metrics([metrics]) == {"actor/loss": 0.0, "actor/num_tokens": 0.0}
    assert make_sample(0, None, rng).num_tokens == 0
