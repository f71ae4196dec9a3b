"""The four contracts that a researcher replaces: StageModel, AdmissionPolicy, Splitter, Envelope. Nothing else.

Every class named in a config is built from its annotated, keyword-only ``__init__`` arguments. Implementations never
read a clock, do I/O, or touch globals; randomness comes only from a seed that they are given.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from bidirl.core.opportunity import Decision, GroupSplitView, LeaseView, Opportunity, PullView
from bidirl.core.topology import Topology
from bidirl.core.work import RolloutUsage, RolloutWork, TrainerWork

WorkT = TypeVar("WorkT", RolloutWork, TrainerWork)
UsageT = TypeVar("UsageT", RolloutUsage, TrainerWork)


class StageModel(ABC, Generic[WorkT, UsageT]):
    """M(work, replicas) → seconds, with replica-max semantics: a stage lasts as long as its slowest replica (§A.1).

    Called by policies (``predict``) and by the profiler (``predict_usage`` to score the model, then ``observe``).
    """

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether the model has seen enough to predict; while false the cold-start rule decides instead."""

    @abstractmethod
    def predict(self, work: WorkT, replicas: int) -> float:
        """Seconds for ``replicas`` replicas to finish ``work``; ``inf`` with no replica, 0 with no work."""

    @abstractmethod
    def predict_usage(self, usage: UsageT) -> float:
        """Seconds that one replica needs for exactly this measured usage."""

    @abstractmethod
    def observe(self, usage: UsageT, seconds: float) -> None:
        """Learn from one replica that did ``usage`` in ``seconds`` of busy time."""

    @abstractmethod
    def parameters(self) -> Mapping[str, Any]:
        """JSON-serialisable state, enough for ``load_parameters`` to predict the same."""

    @abstractmethod
    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Restore what ``parameters`` returned."""


class AdmissionPolicy(ABC):
    """Admit or refuse a borrow. ``decide`` is a pure function of the opportunity (and of a seeded generator)."""

    def __repr__(self) -> str:
        """Names the policy in tables: the class, and the arguments that are not the defaults."""
        shown = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = getattr(self, name, parameter.default)
            if value is not parameter.default and value != parameter.default:
                shown.append(f"{name}={value!r}")
        return type(self).__name__ + (f"({', '.join(shown)})" if shown else "")

    @abstractmethod
    def decide(self, opportunity: Opportunity) -> Decision:
        """Called by the scheduler on every event that leaves something idle while something is missing.

        All times in ``opportunity`` are seconds. Must return in well under a millisecond.
        """

    def release(self, lease: LeaseView, opportunity: Opportunity | None) -> bool:
        """Whether to end an active lease now. Asked on every event while it is open.

        ``opportunity`` describes what is still missing, ``None`` when nothing is. The runtime always ends a
        rollouter_on_trainpool lease when the batch is ready and a trainer_on_rollpool lease when no chunk is left; the
        default asks for nothing more, as the paper does.
        """
        return False


class Splitter(ABC):
    """How admitted work is divided between primaries and auxiliaries."""

    @abstractmethod
    def split_groups(self, view: GroupSplitView) -> tuple[int, ...]:
        """Ids of the missing groups that the auxiliary rollouters shall run, in order (Eq. 6).

        Called at switch-in, and again whenever an auxiliary has run dry while the lease is open. Running groups that
        are named are interrupted and resume on the auxiliary from their prefix.
        """

    @abstractmethod
    def pull_chunks(self, view: PullView) -> int:
        """How many chunks the asking side takes from the head of the queue now (LazyPull, JointTailSplit).

        0 leaves the rest to the other side; the runtime lets the primary side take one chunk if both sides decline.
        """


class Envelope(ABC):
    """Which devices form which pool, with which layouts, and what each may host (Eq. 2)."""

    @abstractmethod
    def topology(self) -> Topology:
        """The placement. Called once, before any worker starts.

        Raises:
            ConfigError: naming the key and the smallest change that works.
        """
