"""From a task, which knows text, to what the cluster needs, which knows tokens."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from bidirl.core.groups import Prompt
from bidirl.runtime.language_models.loading import load_tokenizer
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.ray.rollout_engine import stop_token_ids
from bidirl.runtime.tasks.base import Task


class TokenTask:
    """A task bound to the model's tokenizer.

    Raises:
        ConfigError: if the tokenizer or one of the first prompts does not fit.
    """

    def __init__(self, task: Task, config: RayConfig) -> None:
        self._task = task
        self._tokenizer: Any = load_tokenizer(config.model)
        self._stop_token_ids = set(stop_token_ids(config.model))
        task.bind(self._tokenizer, config.max_model_len - config.max_response_tokens)

    def prompt(self, group_id: int) -> Prompt:
        """The task's prompt."""
        return self._task.prompt(group_id)

    def reward(self, prompt: Prompt, token_ids: NDArray[Any] | None) -> float:
        """The task's score of the decoded response, without its end-of-sequence token."""
        ids = [] if token_ids is None else token_ids.tolist()
        if ids and ids[-1] in self._stop_token_ids:
            ids = ids[:-1]
        return float(self._task.reward(prompt.payload, self._tokenizer.decode(ids)))
