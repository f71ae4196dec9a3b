"""Schedules with faults that Hypothesis chooses, and the faults that one wants to see by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidirl.cli.main import main
from bidirl.core.buffer import RolloutBuffer
from bidirl.core.errors import InvariantError, WorkerError
from bidirl.core.groups import Prompt, new_group
from bidirl.core.staleness import StalenessBound
from bidirl.runtime.sim.faults import VERBS, ScriptedFaults, SeededFaults
from bidirl.runtime.sim.soak import FATAL, SURVIVED, make_schedule, run_schedule


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_schedule_ends_well_or_with_the_fault_that_ended_it(seed: int) -> None:
    run_schedule(make_schedule(seed))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), faults=st.integers(0, 2**32))
def test_every_fault_outside_the_primary_trainers_is_survived(seed: int, faults: int) -> None:
    schedule = make_schedule(seed, fatal=False)
    heavy = SeededFaults(faults, 0.4, (*SURVIVED, "train_chunks"), 1.0, 1.0, ("trainer@trainpool:0",))
    assert run_schedule(replace(schedule, faults=heavy)).kind == "completed"


@pytest.mark.parametrize("seed", [2137, 102832])
def test_a_lease_that_is_ended_while_it_rebalances_ends(seed: int) -> None:
    """Found by ``bidirl soak``: the end was announced while the lease waited for an interruption, and missed."""
    run_schedule(make_schedule(seed))


def test_the_same_seed_is_the_same_schedule() -> None:
    first, second = (run_schedule(make_schedule(7)) for _ in range(2))
    assert first == second


def test_every_verb_is_either_survived_or_fatal() -> None:
    assert {*SURVIVED, *FATAL, "train_chunks", "start"} == set(VERBS)


def test_a_worker_that_never_comes_back_ends_the_run() -> None:
    schedule = make_schedule(0, fatal=False)
    faults = ScriptedFaults([("generate", "*", 0, 0.1), *(("restart", "*", i, 0.0) for i in range(50))])
    limited = replace(schedule, job=replace(schedule.job, max_worker_restarts=3), faults=None)
    with pytest.raises(WorkerError, match="lost again after 3 restarts: scripted fault: restart"):
        run_schedule(replace(limited, faults=faults))


def test_a_completion_that_arrives_twice_is_refused() -> None:
    buffer, group = RolloutBuffer(StalenessBound(1.0, 2), pinned=False), new_group(Prompt(0, 4), 2, 0)
    buffer.issue(group)
    buffer.finish(group)
    with pytest.raises(InvariantError, match="finished but was not running"):
        buffer.finish(group)


def test_the_command_prints_what_it_injected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "--schedules", "20", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "20 simulated schedules passed, seeds 3 to 22" in out
    assert "generate         death" in out


@pytest.mark.parametrize("options", [["--schedules"], ["--seed", "x"], ["--sed", "1"]])
def test_wrong_options_are_status_2(options: list[str]) -> None:
    assert main(["soak", *options]) == 2
