"""One decision per opportunity: the real scheduler on the simulated cluster as a Gymnasium environment.

The coordinator is asyncio code that calls the policy in the middle of a run. It runs in a thread of its own on virtual
time; the policy that it asks blocks until ``step`` brings the action. One of the two threads always waits, so an
episode is as reproducible as a simulated run.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from bidirl.cli.ablate import parse_cell
from bidirl.cli.config import Config
from bidirl.cli.worlds import simulate
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import Decision, Opportunity
from bidirl.gym.features import FEATURES, HIGH, LOW, features
from bidirl.gym.linear_policy import settled_without_asking

# A small job whose pools are badly split, so that lending can pay: 2 + 6 A6000 devices, long-tailed lengths.
DEFAULT_JOB = (
    "--name=lending",
    "--policy=NoBorrow",
    "--envelope={class_path: FixedEnvelope, init_args: {rollpool_devices: 2, trainpool_devices: 6}}",
    "--num_steps=8",
    "--groups_per_batch=32",
    "--group_size=8",
    "--max_tokens_per_chunk=16384",
    "--simulation.testbed=a6000",
    "--simulation.model=qwen3-vl-2b",
    "--simulation.workload={class_path: LognormalWorkload, init_args: {group_size: 8, max_response_tokens: 2048, "
    "median_response_tokens: 300, sigma: 0.75, groups_per_batch: 32}}",
)


class LendingEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Admit (1) or refuse (0) one borrow per step; simulated.

    Observation: ``bidirl.gym.features``. Reward: minus the virtual seconds since the decision before, so that the
    return is minus the duration of the run, whose work is the same whatever is decided. An episode is one run;
    ``info["summary"]`` of its last step is the run's summary. Every reset draws a new workload from its seed.

    Args:
        config: a job's YAML file; ``None`` is a small built-in job.
        options: ``--key=value`` replacements of the config's keys.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, *, config: str | None = None, options: Sequence[str] = (), render_mode: None = None) -> None:
        self.render_mode = render_mode
        replaced = {option.partition("=")[0] for option in options}
        default = DEFAULT_JOB if config is None else ()
        given = (*(x for x in default if x.partition("=")[0] not in replaced), *options)
        # Never run itself: every episode runs a copy, with stage models that have learned nothing yet.
        self._pristine = parse_cell(None if config is None else Path(config), given, "", 0)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Box(LOW, HIGH, (len(FEATURES),), np.float32)
        self._episode: _Episode | None = None
        self._seconds = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start a new run and go to its first decision."""
        super().reset(seed=seed)
        self.close()
        run_seed = int(self.np_random.integers(2**31))
        self._seconds = 0.0
        self._episode = _Episode(self._pristine, run_seed)
        event = self._episode.next_event()
        return self._observe(event), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Give the verdict, and go to the next decision or to the end."""
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        event = self._episode.next_event(bool(action))
        ended = not isinstance(event, Opportunity)
        now = event["wall_seconds"] if not isinstance(event, Opportunity) else event.now_seconds
        reward, self._seconds = self._seconds - now, now
        info = {"summary": event} if ended else {}
        return self._observe(event), float(reward), ended, False, info

    def close(self) -> None:
        """End the run of an unfinished episode."""
        if self._episode is not None:
            self._episode.stop()
            self._episode = None

    def _observe(self, event: Opportunity | dict[str, Any]) -> NDArray[np.float32]:
        if isinstance(event, Opportunity):
            return features(event)
        return np.zeros(len(FEATURES), dtype=np.float32)


class _Stopped(Exception):
    """The episode was given up."""


class _Asking(AdmissionPolicy):
    """Hands every open question to the environment and blocks until it answers."""

    def __init__(self, *, episode: _Episode) -> None:
        self.episode = episode

    def __repr__(self) -> str:
        return "LendingEnv"

    def decide(self, opportunity: Opportunity) -> Decision:
        settled = settled_without_asking(opportunity)
        if settled is not None:
            return settled
        if self.episode.stopped:  # a run that is being given up may still ask until it has ended
            raise _Stopped
        self.episode.events.put(opportunity)
        answer = self.episode.answers.get()
        if answer is None:
            raise _Stopped
        return Decision(answer, "action")


class _Episode:
    """One run in its thread. ``events`` carries opportunities, then the summary or the error; ``answers`` verdicts."""

    def __init__(self, pristine: Config, seed: int) -> None:
        self.events: Queue[Any] = Queue()
        self.answers: Queue[bool | None] = Queue()
        self.stopped = False
        self._ended: dict[str, Any] | None = None
        self._config = replace(deepcopy(pristine), policy=_Asking(episode=self), seed=seed)
        self._config.simulation.workload.seed = seed
        self._thread = Thread(target=self._run, name="simulated run", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.events.put(dict(simulate(self._config)))
        except BaseException as error:
            self.events.put(error)

    def next_event(self, answer: bool | None = None) -> Opportunity | dict[str, Any]:
        """The next opportunity, or the summary at the end (again and again from then on)."""
        if self._ended is not None:
            return self._ended
        if answer is not None:
            self.answers.put(answer)
        event = self.events.get()
        if isinstance(event, BaseException):
            raise event
        if not isinstance(event, Opportunity):
            self._ended = event
        found: Opportunity | dict[str, Any] = event
        return found

    def stop(self) -> None:
        """Give up a run that waits for an answer; its thread ends."""
        self.stopped = True
        self.answers.put(None)
        self._thread.join()
