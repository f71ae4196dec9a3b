"""Workloads: pure functions of the ids, capped, drifting, replayed."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidirl.core.errors import ConfigError
from bidirl.runtime.sim.replay import ReplayWorkload
from bidirl.runtime.sim.workload import ConstantWorkload, LognormalWorkload


def lognormal(seed: int = 0, **kwargs: float) -> LognormalWorkload:
    settings: dict[str, float] = {"median_response_tokens": 300.0, "sigma": 0.75, **kwargs}
    return LognormalWorkload(group_size=8, max_response_tokens=2048, prompt_sigma=0.5, seed=seed, **settings)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=8), st.integers(0, 1000))
def test_any_order_gives_the_same_lengths(ids: list[int], seed: int) -> None:
    first, second = lognormal(seed), lognormal(seed)
    forwards = {i: (first.prompt_tokens(i), first.response_tokens(i), first.rewards(i)) for i in ids}
    for i in reversed(ids):
        assert (second.prompt_tokens(i), second.response_tokens(i), second.rewards(i)) == forwards[i]


@given(st.integers(0, 10**6), st.floats(0.0, 3.0))
def test_lengths_stay_within_the_caps(group_id: int, sigma: float) -> None:
    workload = lognormal(sigma=sigma)
    assert all(1 <= n <= 2048 for n in workload.response_tokens(group_id))
    assert 1 <= workload.prompt_tokens(group_id) <= 1024
    assert set(workload.rewards(group_id)) <= {0.0, 1.0}


def test_the_median_is_the_stated_one_and_drifts() -> None:
    workload = lognormal(drift_per_batch=0.01, groups_per_batch=500)
    for batch, expected in ((0, 300.0), (50, 300.0 * 1.01**50)):
        lengths = [n for i in range(500) for n in workload.response_tokens(batch * 500 + i)]
        assert statistics.median(lengths) == pytest.approx(expected, rel=0.05)


def test_group_correlation_moves_whole_groups() -> None:
    alone, together = lognormal(), lognormal(group_correlation=1.0)
    assert len(set(alone.response_tokens(3))) > 1
    assert len(set(together.response_tokens(3))) == 1


def test_another_seed_is_another_workload() -> None:
    assert lognormal(1).response_tokens(0) != lognormal(2).response_tokens(0)


def test_rewards_drift_and_saturate() -> None:
    workload = lognormal(success_probability=0.2, success_drift=0.1, groups_per_batch=100)
    means = [statistics.mean(r for i in range(100) for r in workload.rewards(b * 100 + i)) for b in (0, 4, 20)]
    assert means == pytest.approx([0.2, 0.6, 1.0], abs=0.06)


def test_constant() -> None:
    workload = ConstantWorkload(group_size=3, response_tokens=7, prompt_tokens=2)
    assert (workload.prompt_tokens(9), workload.response_tokens(9)) == (2, (7, 7, 7))


def test_replay_of_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    rows = [
        {"event": "issued", "group_id": 5, "version": 0},
        {"event": "consumed", "group_id": 5, "prompt_tokens": 11, "response_tokens": [4, 900], "rewards": [1.0, 0.25]},
        {"event": "consumed", "group_id": 2, "prompt_tokens": 12, "response_tokens": [6, 7], "rewards": [None, 0.0]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    workload = ReplayWorkload(path=str(path), group_size=2, max_response_tokens=500)
    assert (workload.prompt_tokens(5), workload.response_tokens(5), workload.rewards(5)) == (11, (4, 500), (1.0, 0.25))
    assert (workload.prompt_tokens(2), workload.response_tokens(2)) == (12, (6, 7))
    assert set(workload.rewards(2)) <= {0.0, 1.0}
    assert workload.response_tokens(100) == (6, 7)
    assert workload.response_tokens(101) == (4, 500)
    with pytest.raises(ConfigError, match="group 2 has 2 responses, group_size is 3"):
        ReplayWorkload(path=str(path), group_size=3, max_response_tokens=500)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", ":1 is not JSON"),
        ("[1]", ":1 is not a mapping"),
        ('{"group_id": 1, "prompt_tokens": 3, "response_tokens": [0]}', ":1: group_id and prompt_tokens"),
        ('{"event": "issued"}', "no row with response_tokens"),
    ],
)
def test_a_bad_record_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        ReplayWorkload(path=str(path), group_size=1, max_response_tokens=5)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"sigma": -1.0}, "sigma"),
        ({"median_response_tokens": 0.0}, "median_response_tokens"),
        ({"drift_per_batch": -1.0}, "drift_per_batch"),
        ({"group_correlation": 2.0}, "group_correlation"),
        ({"success_probability": 1.5}, "success_probability"),
    ],
)
def test_bad_settings_name_the_key(settings: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        lognormal(**settings)
