"""Chain sums with worked steps: what the tiny model is taught, one short line per addition.

    prompt    4 - 1 + 7 =
    response  4-1=3
              3+7=10

The number of lines follows the number of terms, so response lengths spread widely.
"""

from __future__ import annotations

from bidirl.runtime.language_models.config import TinyModelConfig
from bidirl.runtime.tasks import PromptFormat, ReasoningGymTask

CHARACTERS = "0123456789+-*/=().,:;?! \nabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'\"<>[]{}|_%$#&@^~\\`"
"""Every printable ASCII character and the line break: any ASCII text can be encoded."""

QUESTION_PATTERN = r": (.*) =$"


def chain_sum_task(config: TinyModelConfig, seed: int, num_examples: int = 1_000_000) -> ReasoningGymTask:
    """The reasoning-gym task in the form that the tiny model knows: bare sum in, last number out."""
    parameters = {
        "min_terms": config.min_terms,
        "max_terms": config.max_terms,
        "min_digits": 1,
        "max_digits": config.max_digits,
    }
    return ReasoningGymTask(
        dataset="chain_sum",
        parameters=parameters,
        seed=seed,
        num_examples=num_examples,
        answer_format="last_number",
        question_pattern=QUESTION_PATTERN,
        prompt_format=PromptFormat(template="{question} =\n"),
    )


def worked_solution(question: str) -> str:
    """The steps of a sum such as ``4 - 1 + 7``."""
    first, *rest = question.split()
    total, lines = int(first), []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        result = total + int(term) if sign == "+" else total - int(term)
        lines.append(f"{total}{sign}{term}={result}")
        total = result
    return "\n".join(lines) if lines else first
