"""Taking the answer out of a response."""

from __future__ import annotations

import re
from collections import deque
from typing import Literal

AnswerFormat = Literal["whole", "last_line", "last_number", "tag"]

_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def extract_answer(response: str, answer_format: AnswerFormat) -> str | None:
    """The part of ``response`` that is scored, stripped; ``None`` if there is none.

    Args:
        response: generated text.
        answer_format: ``whole`` response, its ``last_line`` that is not blank, its ``last_number`` (a sign belongs to
            it unless a digit stands before), or what the last ``<answer>…</answer>`` pair encloses.
    """
    if answer_format == "tag":
        end = response.rfind("</answer>")
        start = response.rfind("<answer>", 0, max(end, 0))
        return response[start + len("<answer>") : end].strip() if start >= 0 else None
    if answer_format == "last_number":
        return _last_number(response)
    text = response.strip()
    if answer_format == "last_line":
        text = text.splitlines()[-1].strip() if text else ""
    return text or None


def _last_number(response: str) -> str | None:
    found = next(iter(deque(_NUMBER.finditer(response), maxlen=1)), None)
    if found is None:
        return None
    text, start = found.group(), found.start()
    if text[0] in "+-" and start and response[start - 1].isdigit():
        text = text[1:]
    return text.rstrip(",")
