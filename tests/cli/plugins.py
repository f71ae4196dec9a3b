"""A user's own classes, as a config would name them."""

from collections.abc import Mapping
from typing import Any

from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import Decision, Opportunity


class First(AdmissionPolicy):
    def __init__(self, *, margin_seconds: float = 1.5) -> None:
        self.margin_seconds = margin_seconds

    def decide(self, opportunity: Opportunity) -> Decision:
        return Decision(False, "never")


class Second(AdmissionPolicy):
    def __init__(self, *, margin_seconds: float = 2.5, other: int = 3) -> None:
        self.margin_seconds = margin_seconds
        self.other = other

    def decide(self, opportunity: Opportunity) -> Decision:
        return Decision(False, "never")


class Open(First):
    def __init__(self, *, margin_seconds: float = 1.0, **kwargs: int) -> None:
        super().__init__(margin_seconds=margin_seconds)


class Bare(First):
    def __init__(self, *, margin_seconds=1.0) -> None:  # type: ignore[no-untyped-def]
        super().__init__(margin_seconds=margin_seconds)


class NotAPolicy:
    pass


def many_vowels(response: str, record: Mapping[str, Any]) -> float:
    return float(sum(character in "aeiou" for character in response) * 8 > len(response))
