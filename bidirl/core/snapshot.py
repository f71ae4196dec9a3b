"""Everything that a run must remember to go on after a restart, taken between two optimizer steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bidirl.core.cluster import Cluster
from bidirl.core.feeding import Feeder
from bidirl.core.groups import Group
from bidirl.core.state import RunState


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """State of the coordinator at a version. The learner's own state is saved by the cluster beside it.

    Attributes:
        version: optimizer steps applied.
        next_group_id: the data cursor; every group below it was issued.
        older_versions: exported versions below ``version`` that rollouters may still have to load.
        resolved_versions: version after each resolved batch, from 0 (pinned consumption).
        unfinished: open groups with the prefixes that the coordinator knew, in the order in which they were issued.
        finished: groups that wait to be consumed, in the order in which they finished.
        dropped_ids: dropped groups of pinned batches that are not resolved yet.
        num_consumed: groups consumed so far.
        dropped: groups dropped so far, by reason.
        estimates: parameters of the stage models and switch costs.
    """

    version: int
    next_group_id: int
    older_versions: tuple[int, ...]
    resolved_versions: tuple[int, ...]
    unfinished: tuple[Group, ...]
    finished: tuple[Group, ...]
    dropped_ids: tuple[int, ...]
    num_consumed: int
    dropped: Mapping[str, int]
    estimates: Mapping[str, Any]


class CheckpointStore(ABC):
    """Where checkpoints go; asked by the coordinator."""

    @abstractmethod
    def due(self, version: int) -> bool:
        """Whether a checkpoint is wanted now that ``version`` was reached."""

    @abstractmethod
    async def save(self, snapshot: RunSnapshot, cluster: Cluster) -> None:
        """Keep the snapshot and the learner's state, whole or not at all."""

    @abstractmethod
    async def restore(self, cluster: Cluster) -> RunSnapshot | None:
        """Bring the started cluster's learner to the checkpoint to go on from; ``None`` begins at version 0."""


def take_snapshot(state: RunState, feeder: Feeder) -> RunSnapshot:
    """The present state; no batch may be open."""
    buffer, ledger = state.buffer, state.ledger
    return RunSnapshot(
        version=state.version,
        next_group_id=feeder.next_group_id,
        older_versions=tuple(feeder.older_versions()),
        resolved_versions=tuple(feeder.resolved_versions),
        unfinished=tuple(feeder.open_group(group_id) for group_id in buffer.unfinished_ids),
        finished=buffer.finished,
        dropped_ids=buffer.dropped_ids,
        num_consumed=ledger.num_consumed,
        dropped=dict(ledger.dropped),
        estimates=state.estimates.parameters(),
    )


def restore_snapshot(snapshot: RunSnapshot, state: RunState, feeder: Feeder) -> None:
    """Put a fresh coordinator into the state of the snapshot; the cluster is there already."""
    state.version = state.exported = snapshot.version
    open_ids = {group.group_id for group in (*snapshot.unfinished, *snapshot.finished)}
    state.ledger.restore(snapshot.next_group_id, open_ids, snapshot.num_consumed, Counter(snapshot.dropped))
    state.buffer.restore(
        snapshot.unfinished, snapshot.finished, snapshot.dropped_ids, len(snapshot.resolved_versions) - 1
    )
    feeder.restore(snapshot.next_group_id, snapshot.resolved_versions, snapshot.unfinished)
    state.estimates.load_parameters(snapshot.estimates)
