"""The Gymnasium environment: the library's own checker, reproducible, vectorisable, no run left behind."""

import threading
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import bidirl.gym
from bidirl.core.errors import ConfigError
from bidirl.gym import LendingEnv, LinearPolicy
from bidirl.testing import check_policy


def episode(action: int, seed: int) -> tuple[float, dict[str, object]]:
    env = LendingEnv(options=["--num_steps=4"])
    env.reset(seed=seed)
    total, ended, info = 0.0, False, {}
    while not ended:
        _, reward, ended, _, info = env.step(np.int64(action))
        total += reward
    env.close()
    return total, info["summary"]


def test_check_env() -> None:
    env = gymnasium.make(bidirl.gym.ENV_ID, options=["--num_steps=4"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_the_return_is_minus_the_duration_and_refusing_everything_is_no_borrowing() -> None:
    total, summary = episode(0, seed=3)
    assert total == pytest.approx(-summary["wall_seconds"])
    assert all(counts["admitted"] == 0 for counts in summary["leases"].values())
    assert episode(0, seed=3) == (total, summary)
    admitted = episode(1, seed=3)[1]["leases"]
    assert sum(counts["admitted"] for counts in admitted.values()) > 0


def test_vectorised_and_closed_without_threads_left() -> None:
    before = threading.active_count()
    envs = gymnasium.make_vec(bidirl.gym.ENV_ID, num_envs=2, options=["--num_steps=4"])
    observations, _ = envs.reset(seed=1)
    assert observations.shape == (2, 8)
    for _ in range(3):
        observations, rewards, *_ = envs.step(np.array([0, 1]))
        assert np.isfinite(observations).all()
        assert (rewards <= 0).all()
    envs.close()
    assert threading.active_count() == before


def test_the_linear_policy_keeps_the_contract_and_refuses_wrong_weights() -> None:
    check_policy(LinearPolicy(weights=[0.5] * 8, bias=-1.0))
    with pytest.raises(ConfigError, match="give 8"):
        LinearPolicy(weights=[1.0])
