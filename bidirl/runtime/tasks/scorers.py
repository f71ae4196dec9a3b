"""Scoring functions for JSONL tasks; your own has the same signature and is named by its import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bidirl.runtime.tasks.answers import extract_answer


def exact_match(response: str, record: Mapping[str, Any]) -> float:
    """1 if the stripped response equals the record's ``answer`` (as text), else 0."""
    return float(response.strip() == str(record.get("answer", "")).strip())


def last_number(response: str, record: Mapping[str, Any]) -> float:
    """1 if the last number of the response equals the record's ``answer``, else 0."""
    found = extract_answer(response, "last_number")
    if found is None:
        return 0.0
    try:
        return float(float(found.replace(",", "")) == float(str(record["answer"]).replace(",", "")))
    except (KeyError, ValueError):
        return 0.0
