"""A task together with the tokenizer of a model: what the real cluster asks for prompts and rewards."""

from __future__ import annotations

from typing import Any

from numpy import int32
from numpy.typing import NDArray

from bidirl.core.groups import Prompt
from bidirl.runtime.tasks import Task


class BoundTask:
    """Prompts as tokens, rewards of tokens. Checks the first prompts against the context before anything starts.

    Raises:
        ConfigError: if the model has no tokenizer for the task, or a prompt is too long.
    """

    def __init__(self, task: Task, tokenizer: Any, max_prompt_tokens: int) -> None:
        self.task = task
        self._tokenizer = tokenizer
        task.bind(tokenizer, max_prompt_tokens)

    def prompt(self, group_id: int) -> Prompt:
        """The prompt at a position of the data stream."""
        return self.task.prompt(group_id)

    def reward(self, prompt: Prompt, token_ids: NDArray[int32]) -> float:
        """Score of one response; special tokens such as the end of the sequence are left out of its text."""
        text = self._tokenizer.decode(token_ids.tolist(), skip_special_tokens=True)
        return self.task.reward(prompt.payload, text)
