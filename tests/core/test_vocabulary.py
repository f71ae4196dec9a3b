"""Groups, chunks, ledger, devices, leases and topology: the small state machines."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidirl.core.chunks import ChunkQueue, ChunkResult, ChunkState, SubStage, plan_chunks
from bidirl.core.devices import Activity, DeviceBoard
from bidirl.core.errors import ConfigError, InvariantError
from bidirl.core.groups import Group, Prompt, Sample, new_group
from bidirl.core.leases import Lease, LeaseState
from bidirl.core.ledger import Ledger
from bidirl.core.opportunity import Decision
from bidirl.core.topology import Direction, build_topology


def batch(lengths: list[int]) -> list[Group]:
    """One group per length, one sample each, prompts of two tokens."""
    return [Group(Prompt(i, 2), (Sample().extended(0, n, finish_reason="stop"),), 0) for i, n in enumerate(lengths)]


def test_samples_merge_equal_versions_and_check_lengths() -> None:
    """Spans are run-length; tokens and log-probs must match them (invariant 2)."""
    sample = Sample().extended(3, 2, np.array([1, 2], np.int32), np.zeros(2, np.float32))
    sample = sample.extended(3, 1, np.array([3], np.int32), np.zeros(1, np.float32))
    sample = sample.extended(4, 1, np.array([4], np.int32), np.zeros(1, np.float32), "stop")
    assert [(span.version, span.num_tokens) for span in sample.spans] == [(3, 3), (4, 1)]
    sample.check()
    with pytest.raises(InvariantError, match="invariant 2"):
        sample.extended(4, 2, np.array([1], np.int32), np.zeros(2, np.float32)).check()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 100), st.integers(1, 3))
def test_chunks_partition_every_sub_stage(lengths: list[int], limit: int, stages: int) -> None:
    """Every sequence is in exactly one chunk of every sub-stage, longest first, and no avoidable chunk is too large."""
    chunks = plan_chunks(batch(lengths), list(SubStage)[-stages:], limit)
    for stage in list(SubStage)[-stages:]:
        mine = [chunk for chunk in chunks if chunk.sub_stage is stage]
        refs = [ref for chunk in mine for ref in chunk.sequences]
        assert sorted(ref.group_index for ref in refs) == list(range(len(lengths)))
        assert [ref.num_tokens for ref in refs] == sorted((2 + length for length in lengths), reverse=True)
        assert all(chunk.num_tokens <= limit or len(chunk.sequences) == 1 for chunk in mine)
    assert [chunk.chunk_id for chunk in chunks] == list(range(len(chunks)))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 400), st.integers(1, 8))
def test_chunks_shrink_to_a_replicas_share_of_what_is_left(lengths: list[int], limit: int, replicas: int) -> None:
    """Where more than a quarter of the limit is left per replica, a chunk takes at most that share of it."""
    left = sum(2 + length for length in lengths)
    for chunk in plan_chunks(batch(lengths), [SubStage.ACTOR_UPDATE], limit, replicas):
        share = max(left // replicas, limit // 4)
        assert chunk.num_tokens <= min(limit, share) or len(chunk.sequences) == 1
        left -= chunk.num_tokens
    assert left == 0


def test_one_replica_gets_chunks_of_one_size() -> None:
    """Nobody waits for anybody: only the last chunk is small."""
    sizes = [chunk.num_tokens for chunk in plan_chunks(batch([8] * 17), [SubStage.ACTOR_UPDATE], 40)]
    assert sizes == [40, 40, 40, 40, 10]


@given(st.randoms(use_true_random=False))
def test_chunks_finish_once_and_merge_in_order(random: Random) -> None:
    """Any interleaving of pulls, requeues and completions merges all results in chunk order (invariant 5)."""
    queue = ChunkQueue(plan_chunks(batch([3] * 5), [SubStage.REF_LOGPROB, SubStage.ACTOR_UPDATE], 5))
    running: list[int] = []
    while not queue.done:
        chunks = queue.pull(random.randint(1, 3))
        for chunk in chunks:
            if chunk.sub_stage is SubStage.ACTOR_UPDATE:
                assert [result.payload for result in queue.inputs(chunk)] == [chunk.part]
        running += [chunk.chunk_id for chunk in chunks]
        chosen = running.pop(random.randrange(len(running)))
        if random.randrange(5) == 4:
            queue.requeue(chosen)
        else:
            queue.finish(ChunkResult(chosen, payload=chosen))
        queued = [chunk for chunk in queue.chunks if queue.state(chunk.chunk_id) is ChunkState.QUEUED]
        assert list(queue.queued) == queued
        assert queue.queued_sizes == tuple((chunk.sub_stage, chunk.num_tokens) for chunk in queued)
        assert queue.num_queued == len(queued)
    assert [result.chunk_id for result in queue.merged()] == list(range(10))


def test_illegal_chunk_moves_are_refused() -> None:
    """Table 2 has no other arrows."""
    queue = ChunkQueue(plan_chunks(batch([3, 3]), [SubStage.ACTOR_UPDATE], 5))
    with pytest.raises(InvariantError, match="invariant 5"):
        queue.finish(ChunkResult(0))
    queue.pull(1)
    assert [chunk.chunk_id for chunk in queue.cancel_queued()] == [1]
    assert queue.state(1) is ChunkState.CANCELLED
    with pytest.raises(InvariantError, match="before every chunk"):
        queue.merged()
    queue.finish(ChunkResult(0))
    assert queue.done


def test_the_ledger_closes_every_group_once() -> None:
    """Never lost, never twice (invariant 1)."""
    rows: list[object] = []
    ledger = Ledger(rows.append)
    groups = [new_group(Prompt(i, 1), 1, 0) for i in range(3)]
    for group in groups:
        ledger.issue(group.group_id, 0, 0.0)
    ledger.consume(groups[0], 0, 0, 1.0)
    ledger.drop(groups[1], "no_trainable_token", 1.0)
    assert (ledger.num_issued, ledger.num_consumed, ledger.num_dropped, ledger.num_in_flight) == (3, 1, 1, 1)
    for again in (lambda: ledger.consume(groups[0], 1, 1, 2.0), lambda: ledger.issue(2, 0, 2.0)):
        with pytest.raises(InvariantError, match="invariant 1"):
            again()
    assert len(rows) == 5


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(list(Activity)), st.floats(0, 10, allow_nan=False)), max_size=40
    )
)
def test_device_seconds_sum_to_wall_time(changes: list[tuple[int, Activity, float]]) -> None:
    """Invariant 9, and intervals that neither overlap nor leave gaps."""
    clock = [0.0]
    intervals: list[tuple[int, str, float, float, str]] = []
    board = DeviceBoard(range(3), lambda: clock[0], lambda *row: intervals.append(row))
    for device, activity, pause in changes:
        clock[0] += pause
        board.set([device], activity)
    clock[0] += 1.0
    board.flush()
    assert sum(board.seconds().values()) == pytest.approx(3 * clock[0])
    for device in range(3):
        mine = [row for row in intervals if row[0] == device]
        assert mine[0][2] == 0.0
        assert mine[-1][3] == clock[0]
        assert all(a[3] == b[2] for a, b in pairwise(mine))


def test_a_device_has_one_owner() -> None:
    """Invariant 4: no lending of a busy or lent device, no activity on behalf of another."""
    board = DeviceBoard(range(1), lambda: 0.0, lambda *row: None)
    board.set([0], Activity.TRAIN)
    with pytest.raises(InvariantError, match="busy"):
        board.grant([0], 1)
    board.set([0], Activity.IDLE)
    board.grant([0], 1)
    with pytest.raises(InvariantError, match="already lent"):
        board.grant([0], 2)
    with pytest.raises(InvariantError, match="belongs to lease 1"):
        board.set([0], Activity.TRAIN)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["grant", "give_back", *Activity])), max_size=40))
def test_the_board_keeps_track_of_what_is_free_and_what_is_lent(changes: list[tuple[int, str]]) -> None:
    """After any changes, refused ones among them: free is idle at home, lent is owned by a lease."""
    board = DeviceBoard(range(3), lambda: 0.0, lambda *row: None)
    for device, change in changes:
        try:
            if change == "grant":
                board.grant([device], device)
            elif change == "give_back":
                board.give_back([device], device)
            else:
                board.set([device], Activity(change), lease_id=board.owner(device))
        except InvariantError:
            pass
        assert board.lent == {d for d in range(3) if board.owner(d) is not None}
        assert board.free == {d for d in range(3) if board.owner(d) is None and board.activity(d) is Activity.IDLE}


def test_a_lease_moves_only_along_its_diagram() -> None:
    """Rollback only from switching in; nothing after closed."""
    lease = Lease(1, Direction.TRAINER_ON_ROLLPOOL, (), 0, Decision(True, "test"), 0, 0.0)
    with pytest.raises(InvariantError, match="invariant 4"):
        lease.move(LeaseState.CLOSED)
    for state in (LeaseState.ACTIVE, LeaseState.DRAINING, LeaseState.SWITCHING_OUT, LeaseState.CLOSED):
        lease.move(state)
    with pytest.raises(InvariantError, match="invariant 4"):
        lease.move(LeaseState.ACTIVE)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"rollpool_devices": 3, "trainpool_devices": 4, "trainer_layout_devices": 2}, "rollpool_devices is 3"),
        ({"rollpool_devices": 2, "trainpool_devices": 0}, "trainpool_devices"),
        ({"rollpool_devices": 0, "trainpool_devices": 2, "host_auxiliary_rollouters": False}, "host_auxiliary"),
    ],
)
def test_impossible_pools_are_refused(arguments: dict[str, int], key: str) -> None:
    """One line that names the key."""
    with pytest.raises(ConfigError, match=key):
        build_topology(**arguments)


def test_workers_cover_their_pools() -> None:
    """Both roles sit on both pools, primaries at home."""
    topology = build_topology(4, 8, rollouter_layout_devices=2, trainer_layout_devices=4)
    assert [worker.devices for worker in topology.primary_rollouters] == [(0, 1), (2, 3)]
    assert [worker.devices for worker in topology.primary_trainers] == [(4, 5, 6, 7), (8, 9, 10, 11)]
    assert [worker.devices for worker in topology.auxiliary_trainers] == [(0, 1, 2, 3)]
    assert len(topology.auxiliary_rollouters) == 4
    assert all(w.primary for w in topology.primary_rollouters + topology.primary_trainers)
    assert not any(w.primary for w in topology.auxiliary_rollouters + topology.auxiliary_trainers)
