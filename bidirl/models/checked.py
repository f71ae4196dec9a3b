"""A thin guard around a user's stage-time model: what it returns is checked, and its name is in the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bidirl.core.errors import PolicyError
from bidirl.core.interfaces import StageModel, UsageT, WorkT


class CheckedModel(StageModel[WorkT, UsageT]):
    """Passes everything on to ``inner``; NaN or negative seconds, and exceptions, become a :class:`PolicyError`.

    ``inf`` is legal for no replica and some work, and only there.
    """

    inner: StageModel[WorkT, UsageT]

    def __init__(self, *, inner: StageModel[WorkT, UsageT]) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        """Shows the stack."""
        return f"CheckedModel({type(self.inner).__name__})"

    @property
    def ready(self) -> bool:
        """As the inner model says."""
        return self.inner.ready

    def predict(self, work: WorkT, replicas: int) -> float:
        """The inner prediction, checked."""
        try:
            seconds = self.inner.predict(work, replicas)
        except Exception as error:
            raise self._raised("predict", f"replicas={replicas}", work, error) from error
        if not (0.0 <= seconds < float("inf") or (seconds == float("inf") and replicas <= 0)):
            raise self._unusable(f"predict(…, replicas={replicas})", seconds, work)
        return seconds

    def predict_usage(self, usage: UsageT) -> float:
        """The inner prediction, checked."""
        try:
            seconds = self.inner.predict_usage(usage)
        except Exception as error:
            raise self._raised("predict_usage", "one replica", usage, error) from error
        if not 0.0 <= seconds < float("inf"):
            raise self._unusable("predict_usage(…)", seconds, usage)
        return seconds

    def observe(self, usage: UsageT, seconds: float) -> None:
        """Passed on."""
        try:
            self.inner.observe(usage, seconds)
        except Exception as error:
            raise self._raised("observe", f"seconds={seconds}", usage, error) from error

    def parameters(self) -> Mapping[str, Any]:
        """The inner parameters."""
        return self.inner.parameters()

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Passed on."""
        self.inner.load_parameters(parameters)

    def _unusable(self, call: str, seconds: float, subject: object) -> PolicyError:
        name = f"{type(self.inner).__module__}.{type(self.inner).__qualname__}"
        return PolicyError(f"stage model {name}.{call} returned {seconds!r} for {_short(subject)}: need seconds ≥ 0")

    def _raised(self, method: str, detail: str, subject: object, error: Exception) -> PolicyError:
        name = f"{type(self.inner).__module__}.{type(self.inner).__qualname__}"
        return PolicyError(
            f"stage model {name}.{method} raised {type(error).__name__}: {error} ({detail}) for {_short(subject)}"
        )


def _short(subject: object) -> str:
    text = repr(subject)
    return text if len(text) <= 200 else text[:200] + "…"
