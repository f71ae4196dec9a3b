"""Answers taken out of responses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidirl.runtime.tasks.answers import AnswerFormat, extract_answer
from bidirl.runtime.tasks.scorers import exact_match, last_number


@pytest.mark.parametrize(
    ("answer_format", "response", "answer"),
    [
        ("whole", "  4 \n", "4"),
        ("whole", " \n", None),
        ("last_line", "1+2=3\n3\n\n", "3"),
        ("last_line", "", None),
        ("last_number", "7-12=-5", "-5"),
        ("last_number", "7-12", "12"),
        ("last_number", "costs $1,250.50, really", "1,250.50"),
        ("last_number", "none", None),
        ("tag", "<answer>1</answer> no, <answer> 2 </answer>", "2"),
        ("tag", "<answer>1", None),
        ("tag", "1</answer>", None),
        ("tag", "", None),
    ],
)
def test_formats(answer_format: AnswerFormat, response: str, answer: str | None) -> None:
    assert extract_answer(response, answer_format) == answer


@given(st.text(), st.sampled_from(["whole", "last_line", "last_number", "tag"]))
def test_any_text_is_accepted(response: str, answer_format: AnswerFormat) -> None:
    found = extract_answer(response, answer_format)
    assert found is None or found in response


def test_scorers() -> None:
    assert exact_match(" 4\n", {"answer": 4}) == 1.0
    assert exact_match("5", {"answer": "4"}) == 0.0
    assert last_number("so 1,000", {"answer": "1000.0"}) == 1.0
    assert last_number("so 1,000", {"answer": "many"}) == 0.0
    assert last_number("nothing", {"answer": "1"}) == 0.0
    assert last_number("1", {}) == 0.0
