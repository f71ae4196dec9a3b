"""Streams are pure functions of their key, and look uniform and independent."""

import numpy as np

from bidirl.runtime.ray.random_stream import sample_key, uniforms


def draws(seed, group, sample, positions):
    positions = np.asarray(positions, np.uint64)
    return uniforms(np.full(len(positions), sample_key(seed, group, sample), np.uint64), positions)


def test_a_resumed_stream_continues():
    whole = draws(0, 3, 1, range(50))
    assert np.array_equal(whole[20:], draws(0, 3, 1, range(20, 50)))


def test_streams_of_samples_groups_and_seeds_differ():
    keys = {sample_key(s, g, i) for s in range(5) for g in range(200) for i in range(16)}
    assert len(keys) == 5 * 200 * 16


def test_numbers_are_uniform_and_uncorrelated():
    table = np.stack([draws(7, g, i, range(64)) for g in range(50) for i in range(8)])
    assert 0 < table.min() < 0.001 and 0.999 < table.max() < 1
    counts = np.histogram(table, bins=20, range=(0, 1))[0]
    expected = table.size / 20
    assert float(np.sum((counts - expected) ** 2) / expected) < 45  # chi-square with 19 degrees, p ≈ 1e-3
    for first, second in ((table[:, :-1], table[:, 1:]), (table[:-1], table[1:])):
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.02
