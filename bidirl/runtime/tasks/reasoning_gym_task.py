"""Any data set of reasoning-gym as a task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_args

from bidirl.core.errors import ConfigError
from bidirl.runtime.tasks.answers import AnswerFormat, extract_answer
from bidirl.runtime.tasks.base import Example, PromptFormat, Task
from bidirl.runtime.tasks.names import unknown_name


class ReasoningGymTask(Task):
    """Questions and scores of one reasoning-gym data set.

    Args:
        dataset: its name, for example ``chain_sum``.
        parameters: its own settings (``{"min_terms": 2, "max_terms": 6}``); unknown ones are refused.
        seed: of the questions.
        num_examples: distinct questions; the stream then repeats.
        answer_format: see :func:`~bidirl.runtime.tasks.answers.extract_answer`.
        question_pattern: regular expression whose first group replaces the question: small models do without the
            instructions around it.
        prompt_format: see :class:`~bidirl.runtime.tasks.base.PromptFormat`.
    """

    def __init__(
        self,
        *,
        dataset: str,
        parameters: dict[str, Any] | None = None,
        seed: int = 0,
        num_examples: int = 10_000,
        answer_format: AnswerFormat = "tag",
        question_pattern: str | None = None,
        prompt_format: PromptFormat | None = None,
    ) -> None:
        super().__init__(prompt_format=prompt_format)
        if answer_format not in get_args(AnswerFormat):
            raise unknown_name("answer_format", answer_format, get_args(AnswerFormat))
        self.num_examples = num_examples
        self.answer_format = answer_format
        self.question_pattern = _pattern(question_pattern)
        self.source = _create(dataset, parameters or {}, seed, num_examples)
        self.example(0)

    def example(self, index: int) -> Example:
        entry = self.entry(index)
        question = str(entry["question"])
        if self.question_pattern is not None:
            match = self.question_pattern.search(question)
            if match is None:
                raise ConfigError(
                    f"question_pattern: does not match the question {question[:80]!r}; correct or omit it"
                )
            question = match.group(1)
        # The whole entry is a function of its index: the payload stays small and of plain types.
        return Example(question, {"index": index % self.num_examples, "answer": str(entry["answer"])})

    def entry(self, index: int) -> dict[str, Any]:
        """The data set's own entry: ``question``, ``answer`` and ``metadata``."""
        return self._entry(index % self.num_examples)

    def reward(self, payload: Mapping[str, Any], response_text: str) -> float:
        answer = extract_answer(response_text, self.answer_format)
        return 0.0 if answer is None else float(self.source.score_answer(answer, self.entry(payload["index"])))

    def _entry(self, index: int) -> dict[str, Any]:
        return _cached_entry(self, index)

    def __repr__(self) -> str:
        return f"ReasoningGymTask({type(self.source).__name__}, num_examples={self.num_examples})"


@lru_cache(maxsize=4096)
def _cached_entry(task: ReasoningGymTask, index: int) -> dict[str, Any]:
    """Entries by task object and index: a group asks for its entry once per sample."""
    entry: dict[str, Any] = task.source[index]
    return entry


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        pattern = re.compile(text, re.DOTALL)
    except re.error as error:
        raise ConfigError(f"question_pattern: {text!r} is not a regular expression ({error}); correct it") from error
    if pattern.groups < 1:
        raise ConfigError(f"question_pattern: {text!r} has no group; put parentheses around what to keep")
    return pattern


def _create(name: str, parameters: dict[str, Any], seed: int, size: int) -> Any:
    from reasoning_gym.factory import DATASETS, create_dataset

    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    known = set(DATASETS[name][1].__dataclass_fields__) - {"seed", "size"}
    for key in parameters:
        if key in ("seed", "size"):
            fix = "seed" if key == "seed" else "num_examples"
            raise ConfigError(f"parameters.{key}: is set by the task; use its own {fix} instead")
        if key not in known:
            raise unknown_name(f"parameters of {name}", key, known)
    try:
        return create_dataset(name, seed=seed, size=size, **parameters)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"parameters: {name} refuses {parameters} with num_examples={size}: {error}") from error
