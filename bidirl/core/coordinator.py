"""The coordinator: feeding, training and scheduling over one cluster, in either world, and the end of a run."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from bidirl.core.cluster import Cluster
from bidirl.core.errors import StallError
from bidirl.core.estimates import Estimates
from bidirl.core.feeding import Feeder
from bidirl.core.interfaces import AdmissionPolicy, Splitter
from bidirl.core.job import JobSettings
from bidirl.core.lending import Lender
from bidirl.core.records import Recorder
from bidirl.core.scheduler import Scheduler
from bidirl.core.snapshot import CheckpointStore, restore_snapshot, take_snapshot
from bidirl.core.state import RunState
from bidirl.core.steps import StepLog
from bidirl.core.summary import summarise
from bidirl.core.topology import Direction
from bidirl.core.training import TrainLoop


async def run_job(
    cluster: Cluster,
    settings: JobSettings,
    policy: AdmissionPolicy,
    splitter: Splitter,
    estimates: Estimates,
    recorder: Recorder,
    checkpoints: CheckpointStore | None = None,
) -> dict[str, Any]:
    """Run the whole job and return its summary. The cluster is started and closed here.

    With ``checkpoints`` the run begins where they say, and leaves new ones.

    The recorder is closed with the summary in every case; after a failure the summary has ``error``, and the error is
    raised again.
    """
    summary: dict[str, Any] = {"world": cluster.world, "policy": repr(policy), "steps": 0}
    try:
        await cluster.start()
        for number in range(settings.probe_switches + 1 if settings.probe_switches else 0):
            await _probe_switches(cluster, estimates if number else None)
        state = RunState(cluster, settings, estimates, recorder)
        log = StepLog(state)
        feeder = Feeder(state)
        save = None if checkpoints is None else partial(_save, checkpoints, state, feeder)
        trainer = TrainLoop(state, splitter, feeder, log, save)
        lender = Lender(state, splitter, feeder, trainer)
        scheduler = Scheduler(state, policy, feeder, trainer, lender)
        snapshot = None if checkpoints is None else await checkpoints.restore(cluster)
        if snapshot is not None:
            restore_snapshot(snapshot, state, feeder)
        state.listen(scheduler.before_feeding)
        state.listen(feeder.on_event)
        state.listen(scheduler.after_feeding)
        try:
            await _supervise(state, trainer)
        finally:
            state.board.flush()
            summary = summarise(state, log, scheduler, lender)
    except BaseException as error:
        summary["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        recorder.close(summary)
        await cluster.close()
    return summary


async def _save(checkpoints: CheckpointStore, state: RunState, feeder: Feeder) -> None:
    """Leave a checkpoint if one is due."""
    if checkpoints.due(state.version):
        await checkpoints.save(take_snapshot(state, feeder), state.cluster)


async def _supervise(state: RunState, trainer: TrainLoop) -> None:
    """Run the trainer until all steps are done, or until the first failure of any task."""
    main = asyncio.get_running_loop().create_task(trainer.run(), name="training loop")
    state.spawn(_watchdog(state), "watchdog")

    def stop(_: object) -> None:
        main.cancel()

    state.failure.add_done_callback(stop)
    try:
        await main
    except asyncio.CancelledError:
        if state.failure.done():
            state.failure.result()
        raise
    finally:
        state.stopping = True
        state.failure.remove_done_callback(stop)
        if not state.failure.done():
            state.failure.cancel()
        elif not state.failure.cancelled():
            state.failure.exception()
        main.cancel()
        await state.cancel_tasks()


async def _watchdog(state: RunState) -> None:
    """End the run when nothing has happened for the configured time (invariant 12)."""
    while True:
        seen = state.num_events
        await asyncio.sleep(state.settings.watchdog_seconds)
        if state.num_events == seen:
            raise StallError(
                f"no progress for {state.settings.watchdog_seconds:g} s at version {state.version}: "
                f"{state.buffer.num_missing(state.version)} groups missing, {state.buffer.num_finished} finished; "
                f"waiting: {state.waiting()}"
            )


async def _probe_switches(cluster: Cluster, estimates: Estimates | None) -> None:
    """Measure C_in and C_out of both directions before the first step, while everything is idle.

    Without ``estimates`` it is a warm-up: the first switch of a process allocates what later ones find.
    """
    topology = cluster.topology
    for direction, workers in (
        (Direction.ROLLOUTER_ON_TRAINPOOL, topology.auxiliary_rollouters),
        (Direction.TRAINER_ON_ROLLPOOL, topology.auxiliary_trainers),
    ):
        if not workers:
            continue
        began = cluster.now_seconds()
        await asyncio.gather(*(cluster.switch_in(worker, 0) for worker in workers))
        active = cluster.now_seconds()
        await asyncio.gather(*(cluster.switch_out(worker) for worker in workers))
        if estimates is None:
            continue
        estimates.observe_switch(direction, in_seconds=active - began, out_seconds=cluster.now_seconds() - active)
