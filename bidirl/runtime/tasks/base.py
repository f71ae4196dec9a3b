"""The task interface: a stream of examples, their tokens, and the reward of a response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bidirl.core.errors import ConfigError
from bidirl.core.groups import Prompt


@dataclass(frozen=True, slots=True)
class Example:
    """One question of the stream. ``payload`` is what the reward needs: small, and plain JSON types."""

    question: str
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFormat:
    """How a question becomes the text that the model continues.

    Attributes:
        template: plain text with ``{question}`` in it.
        use_chat_template: wrap the result as a user message with the tokenizer's own chat template.
        system_prompt: system message before it; only with the chat template.
    """

    template: str = "{question}"
    use_chat_template: bool = False
    system_prompt: str | None = None

    def __post_init__(self) -> None:
        """Refuse a template without the question, and a system prompt that nothing would show.

        Raises:
            ConfigError: naming the key and the fix.
        """
        if "{question}" not in self.template:
            raise ConfigError(f"prompt_format.template: {self.template!r} does not contain {{question}}; add it")
        if self.system_prompt is not None and not self.use_chat_template:
            raise ConfigError(
                "prompt_format.system_prompt: has no effect without a chat template; "
                "set prompt_format.use_chat_template to true or put the text into prompt_format.template"
            )

    def render(self, question: str, tokenizer: Any) -> str:
        """The text before tokenisation."""
        text = self.template.replace("{question}", question)
        if not self.use_chat_template:
            return text
        messages = [{"role": "user", "content": text}]
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


class Task(ABC):
    """A data stream and its reward.

    A subclass's typed keyword-only ``__init__`` is its configuration. The runtime calls :meth:`bind` once at start,
    then :meth:`prompt` from the driver and :meth:`reward` from the rollout workers, which hold a copy of the task.
    """

    def __init__(self, *, prompt_format: PromptFormat | None = None) -> None:
        self.prompt_format = prompt_format or PromptFormat()
        self._tokenizer: Any = None
        self._max_prompt_tokens = 0

    @abstractmethod
    def example(self, index: int) -> Example:
        """The example at this position of the endless stream; a pure function of the task's seed and ``index``."""

    @abstractmethod
    def reward(self, payload: Mapping[str, Any], response_text: str) -> float:
        """Score of one response, without the end-of-sequence token; usually between 0 and 1."""

    def bind(self, tokenizer: Any, max_prompt_tokens: int, num_checked: int = 64) -> None:
        """Give the task the model's tokenizer and check the first prompts against the context.

        Args:
            tokenizer: of transformers.
            max_prompt_tokens: longest prompt that leaves room for a response.
            num_checked: prompts that are checked here, before any worker starts. A longer one further on raises the
                same error when its turn comes; none is cut or skipped silently.

        Raises:
            ConfigError: naming the key and the fix.
        """
        if self.prompt_format.use_chat_template and not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                "prompt_format.use_chat_template: the tokenizer of this model has no chat template; set it to false"
            )
        self._tokenizer, self._max_prompt_tokens = tokenizer, max_prompt_tokens
        for group_id in range(num_checked):
            self.prompt(group_id)

    def prompt(self, group_id: int) -> Prompt:
        """The prompt of a group; a pure function of the task's settings and ``group_id``.

        Raises:
            ConfigError: if it is longer than ``max_prompt_tokens`` or has no token.
        """
        if self._tokenizer is None:
            raise RuntimeError("Task.bind must be called before the first prompt")
        example = self.example(group_id)
        text = self.prompt_format.render(example.question, self._tokenizer)
        token_ids = self._tokenizer.encode(text, add_special_tokens=not self.prompt_format.use_chat_template)
        if not token_ids:
            raise ConfigError(f"prompt_format.template: the prompt of example {group_id} is empty; add some text")
        if len(token_ids) > self._max_prompt_tokens:
            raise ConfigError(
                f"max_model_len: the prompt of example {group_id} has {len(token_ids)} tokens, "
                f"{self._max_prompt_tokens} are left beside the response; raise ray.max_model_len, "
                "lower ray.max_response_tokens, or use shorter prompts"
            )
        return Prompt(group_id, len(token_ids), np.array(token_ids, np.int32), example.payload)
