"""A small learned policy: cross-entropy search over a linear score, then one row of a table on unseen seeds.

``python -m experiments.learned``. Simulated. The job is the built-in one of the Gymnasium environment.
"""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
from numpy.typing import NDArray

import bidirl.gym
from bidirl.cli.ablate import PolicyRuns, ablation_report, run_cell
from bidirl.gym.environment import DEFAULT_JOB
from bidirl.gym.features import FEATURES
from experiments.sweeps import arguments, publish

POLICIES = ("NoBorrow", "Opportunistic", "ModelGuided", "PricedModelGuided")
GENERATIONS, POPULATION, ELITE, EPISODES = 6, 16, 4, 2
_FIRST_UNSEEN_SEED = 1000


def episode_return(
    env: gymnasium.Env[NDArray[np.float32], np.int64], parameters: NDArray[np.float64], seed: int
) -> float:
    """Return of one episode under the sign of bias + weights · features."""
    observation, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        action = np.int64(parameters[0] + parameters[1:] @ observation > 0.0)
        observation, reward, ended, _, _ = env.step(action)
        total += float(reward)
    return total


def search(seed: int) -> NDArray[np.float64]:
    """Cross-entropy method; every generation is scored on episodes of its own."""
    env = gymnasium.make(bidirl.gym.ENV_ID, disable_env_checker=True)
    rng = np.random.default_rng(seed)
    mean, deviation = np.zeros(len(FEATURES) + 1), np.ones(len(FEATURES) + 1)
    for generation in range(GENERATIONS):
        candidates = rng.normal(mean, deviation, (POPULATION, mean.size))
        seeds = [generation * EPISODES + i for i in range(EPISODES)]
        scores = [sum(episode_return(env, candidate, s) for s in seeds) for candidate in candidates]
        best = candidates[np.argsort(scores)[-ELITE:]]
        mean, deviation = best.mean(axis=0), best.std(axis=0) + 0.05
        print(f"generation {generation}: mean return of the elite {np.sort(scores)[-ELITE:].mean() / EPISODES:.1f}")
    env.close()
    return mean


def main() -> None:
    """Train, compare, write."""
    given = arguments(__doc__)
    found = [round(float(value), 4) for value in search(0)]
    learned = f"{{class_path: bidirl.gym.LinearPolicy, init_args: {{bias: {found[0]}, weights: {found[1:]}}}}}"
    seeds = range(_FIRST_UNSEEN_SEED, _FIRST_UNSEEN_SEED + given.seeds)
    options = tuple(option for option in DEFAULT_JOB if not option.startswith("--policy"))
    results = [
        PolicyRuns(name, tuple(run_cell(None, options, policy, seed) for seed in seeds))
        for name, policy in (*((p, p) for p in POLICIES), ("LinearPolicy (learned)", learned))
    ]
    note = f"2 + 6 devices, qwen3-vl-2b on a6000, seeds unseen in training; learned: {learned}"
    report = ablation_report("learned", results, note, "A learned admission policy (simulated)")
    publish([replace(report, name="learned")], given.output_dir)


if __name__ == "__main__":
    main()
