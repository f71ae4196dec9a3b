"""The summary of a run: the same keys in both worlds (docs/metrics.md)."""

from __future__ import annotations

from typing import Any

from bidirl.core.devices import productive_seconds
from bidirl.core.leases import LeaseState
from bidirl.core.lending import Lender
from bidirl.core.scheduler import Scheduler
from bidirl.core.state import RunState
from bidirl.core.steps import StepLog
from bidirl.core.topology import Direction


def window_figures(state: RunState, log: StepLog) -> dict[str, float]:
    """Throughput and its work-conserving bound over the steps that are left after dropping head and tail.

    Throughput counts prompt and response tokens of consumed groups, over all devices of the budget. The bound divides
    the same tokens by the time that the productive device-seconds of the window would take on all devices at once. Runs
    with too few steps for the window use all steps.
    """
    marks = log.marks
    head, tail = state.settings.head_steps, state.settings.tail_steps
    first, last = (head, len(marks) - 1 - tail) if len(marks) - 1 > head + tail else (0, len(marks) - 1)
    begin, end = marks[first], marks[last]
    tokens, seconds = end.tokens - begin.tokens, end.seconds - begin.seconds
    spent = {name: end.device_seconds[name] - begin.device_seconds[name] for name in end.device_seconds}
    busy = productive_seconds(spent) / state.cluster.topology.num_devices
    return {
        "throughput_tokens_per_second": tokens / seconds if seconds > 0 else 0.0,
        "work_conserving_bound_tokens_per_second": tokens / busy if busy > 0 else 0.0,
        "window_first_step": first,
        "window_last_step": last,
    }


def summarise(state: RunState, log: StepLog, scheduler: Scheduler, lender: Lender) -> dict[str, Any]:
    """Everything that is known of the run now."""
    topology, staleness, rewards = state.cluster.topology, log.staleness, log.rewards
    leases = [*lender.closed, *lender.open.values()]
    return {
        "world": state.cluster.world,
        "policy": repr(scheduler.policy),
        "num_devices": topology.num_devices,
        "steps": state.version,
        "wall_seconds": state.now_seconds(),
        **window_figures(state, log),
        "tokens_trained": log.marks[-1].tokens,
        "device_seconds": state.board.seconds(),
        "device_seconds_by_pool": {
            "rollpool": state.board.seconds(topology.rollpool),
            "trainpool": state.board.seconds(topology.trainpool),
        },
        "leases": {
            direction.value: {
                "admitted": scheduler.num_admitted[direction],
                "refused": scheduler.num_refused[direction],
                "rolled_back": sum(x.state is LeaseState.ROLLED_BACK for x in leases if x.direction is direction),
                "partial_groups": sum(x.num_partials for x in leases if x.direction is direction),
                "realised_benefit_seconds": sum(x.realised_benefit_seconds for x in leases if x.direction is direction),
            }
            for direction in Direction
        },
        "switch_cost_seconds": {d.value: dict(state.estimates.measured_switch_cost(d)) for d in Direction},
        "groups": {
            "issued": state.ledger.num_issued,
            "consumed": state.ledger.num_consumed,
            "dropped": state.ledger.num_dropped,
            "dropped_by_reason": dict(state.ledger.dropped),
            "in_flight": state.ledger.num_in_flight,
        },
        "staleness": {"mean": sum(staleness) / len(staleness), "max": max(staleness)}
        if staleness
        else {"mean": None, "max": None},
        "reward": {"first": rewards[0], "last": rewards[-1]} if rewards else {"first": None, "last": None},
        "stage_model_error": {stage: dict(errors) for stage, errors in state.estimates.errors().items()},
        "estimates": dict(state.estimates.parameters()),
        "verb_seconds": state.verb_seconds(),
        "restarts": {worker.name: count for worker, count in state.num_restarts.items()},
        "num_decisions": scheduler.num_decisions,
        "num_events": state.num_events,
    }
