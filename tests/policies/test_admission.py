"""The admission rules: exactness, ties, cold start, monotone in the costs, and never later under a perfect model."""

from __future__ import annotations

import heapq
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidirl.core.chunks import SubStage
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import LeaseHistory, LeaseView, Opportunity
from bidirl.core.topology import Direction
from bidirl.core.work import RolloutWork, SwitchCost, TrainerWork
from bidirl.models.oracle import OracleRolloutModel, OracleTrainerModel
from bidirl.models.rollout import CalibratedRolloutModel
from bidirl.models.trainer_base import SubStageCost
from bidirl.policies.baselines import NoBorrow, Opportunistic, RolloutOnly, TrainOnly
from bidirl.policies.hindsight import HindsightPlan, PerDirection
from bidirl.policies.model_guided import ModelGuided
from bidirl.policies.priced import PricedModelGuided
from bidirl.policies.published_gates import VerlDynamicSchedule, VerlSeparateAsync
from bidirl.policies.rules import drain_prefix

R_ON_T, T_ON_R = Direction.ROLLOUTER_ON_TRAINPOOL, Direction.TRAINER_ON_ROLLPOOL
ONE_PER_KTOKEN = OracleTrainerModel(actor_update=SubStageCost(0.0, 1.0), old_logprob=SubStageCost(0.0, 0.25))
STEPS = OracleRolloutModel(prefill_seconds=0.0, step_seconds=0.0, token_seconds=0.25)
WORK = RolloutWork(16, 0.0, 4.0, 4.0, 0.0, 16)


def opportunity(direction: Direction = R_ON_T, **changes: object) -> Opportunity:
    base = Opportunity(
        opportunity_id=0,
        direction=direction,
        cause="test",
        now_seconds=0.0,
        version=0,
        staleness_bound=0.0,
        primary_replicas=1,
        auxiliary_replicas=1,
        missing_groups=4,
        rollout_work=WORK,
        trainer_work=TrainerWork(((SubStage.ACTOR_UPDATE, 1000),) * 16),
        chunk_seconds_running=0.0,
        lender_wait_seconds=inf,
        switch_cost=SwitchCost(1.0, 1.0, 0.5),
        rollout_model=STEPS,
        trainer_model=ONE_PER_KTOKEN,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_equation_5_and_its_tie() -> None:
    # 16 sequences × 4 tokens × 0.25 s: 16 s on one replica, 8 s on two: a benefit of exactly 8.
    paid = ModelGuided().decide(opportunity(switch_cost=SwitchCost(4.0, 3.5)))
    assert paid.admit and paid.benefit_seconds == 8.0 and paid.cost_seconds == 7.5
    assert not ModelGuided().decide(opportunity(switch_cost=SwitchCost(4.0, 4.0))).admit


def test_algorithm_2_drains_and_charges_the_merge() -> None:
    # C_in = 2 drains 2 of 16 one-second chunks; 14 on two replicas take 7: borrow = 2 + 7 + C_out + C_grad.
    decision = ModelGuided().decide(opportunity(T_ON_R, switch_cost=SwitchCost(2.0, 3.0, 3.5)))
    assert decision.admit and decision.numbers["borrow_seconds"] == 15.5 and decision.numbers["drained_chunks"] == 2
    assert not ModelGuided().decide(opportunity(T_ON_R, switch_cost=SwitchCost(2.0, 3.0, 4.0))).admit  # tie


def test_no_merge_without_actor_update() -> None:
    work = TrainerWork(((SubStage.OLD_LOGPROB, 4000),) * 16)
    cost = SwitchCost(2.0, 3.0, 1000.0)
    assert ModelGuided().decide(opportunity(T_ON_R, trainer_work=work, switch_cost=cost)).admit
    mixed = TrainerWork((*work.chunks, (SubStage.ACTOR_UPDATE, 1)))
    assert not ModelGuided().decide(opportunity(T_ON_R, trainer_work=mixed, switch_cost=cost)).admit


def test_cold_start_and_calibration_are_explicit() -> None:
    cold = opportunity(rollout_model=CalibratedRolloutModel())
    assert not ModelGuided().decide(cold).admit
    assert ModelGuided(cold_start="admit").decide(cold).admit
    assert not ModelGuided(cold_start="admit").decide(replace(cold, calibrating=True)).admit
    colocated = replace(cold, calibrating=True, primary_replicas=0)
    assert ModelGuided().decide(colocated).reason == "no_primary_replica" and ModelGuided().decide(colocated).admit


@pytest.mark.parametrize("policy", [Opportunistic(), ModelGuided(), PricedModelGuided(), VerlDynamicSchedule()])
def test_nothing_idle_or_missing_refuses(policy: AdmissionPolicy) -> None:
    assert policy.decide(opportunity(auxiliary_replicas=0)).reason == "no_idle_replica"
    assert policy.decide(opportunity(missing_groups=0)).reason == "nothing_missing"


def test_one_direction_and_none() -> None:
    inner = Opportunistic()
    assert RolloutOnly(inner=inner).decide(opportunity()).admit
    assert not RolloutOnly(inner=inner).decide(opportunity(T_ON_R)).admit
    assert TrainOnly(inner=inner).decide(opportunity(T_ON_R)).admit
    assert not TrainOnly(inner=inner).decide(opportunity()).admit
    assert not NoBorrow().decide(opportunity()).admit
    assert repr(RolloutOnly(inner=inner)).startswith("RolloutOnly(")


def test_published_gates_keep_their_weaknesses() -> None:
    assert VerlDynamicSchedule().decide(opportunity(switch_cost=SwitchCost(1e6, 1e6))).admit  # unknown admits
    assert VerlSeparateAsync().decide(opportunity()).admit
    known = LeaseHistory((100.0, 9.0, 9.0, 9.0), 1.0)
    assert VerlDynamicSchedule().decide(opportunity(history=known)).cost_seconds == 9.0
    gate = VerlSeparateAsync().decide(opportunity(history=known))
    assert gate.benefit_seconds == 8.0 and not gate.admit
    wound_up = replace(known, paid=1000)
    assert VerlSeparateAsync().decide(opportunity(history=wound_up)).cost_seconds == -991.0  # no floor
    assert not VerlDynamicSchedule().decide(opportunity(T_ON_R)).admit
    assert VerlDynamicSchedule(causes=["step"]).decide(opportunity()).reason == "not_a_step_end"


def test_priced_counts_working_primaries_and_the_lender() -> None:
    policy = PricedModelGuided(relative_margin=0.0)
    dear = opportunity(switch_cost=SwitchCost(5.0, 5.0))  # Eq. (5) refuses: 8 < 10; primaries work meanwhile
    assert not ModelGuided().decide(dear).admit
    assert policy.decide(dear).admit and policy.decide(dear).benefit_seconds == pytest.approx(3.0)
    assert not policy.decide(replace(dear, lender_wait_seconds=9.0)).admit
    assert not policy.decide(replace(dear, lender_wait_seconds=nan)).admit  # unknown: the paper's rule
    assert policy.decide(opportunity(lender_wait_seconds=4.0, trainer_work=TrainerWork(()))).benefit_seconds == 2.0


def test_priced_charges_only_what_delays_the_lender() -> None:
    policy = PricedModelGuided(relative_margin=0.0, followers=0.0)
    # 16 chunks of 1 s on one replica; C_in = 2 drains two, 14 on two replicas take 7: 9 + merge 0.5 against 16.
    late = opportunity(T_ON_R, switch_cost=SwitchCost(2.0, 7.0, 0.5), lender_wait_seconds=17.0)  # publishing takes 1
    assert not ModelGuided().decide(late).admit  # 2 + 7 + 7 + 0.5 > 16
    assert policy.decide(late).numbers["lender_delay_seconds"] == 6.0 and policy.decide(late).admit
    ahead = replace(late, staleness_bound=1.0, lender_replicas=4)  # a batch is waiting: 16 s of rollout on 4 take 4
    assert policy.decide(ahead).numbers["lender_delay_seconds"] == 0.0
    slow = replace(ahead, rollout_work=replace(WORK, remaining_tokens=400.0, longest_tokens=400.0))
    assert policy.decide(slow).numbers["lender_delay_seconds"] == 1.5  # one of four rollouters comes 6 s late
    assert not policy.decide(replace(late, switch_cost=SwitchCost(2.0, 8.0, 0.5))).admit


def test_priced_charges_the_merge_once_and_counts_on_followers() -> None:
    # 14 of 16 chunks are left after C_in: 7 s on two replicas, 4 s on four.
    dear = opportunity(T_ON_R, switch_cost=SwitchCost(2.0, 0.0, 7.5), lender_wait_seconds=16.0, lender_replicas=3)
    assert not PricedModelGuided(relative_margin=0.0, followers=0.0).decide(dear).admit  # 2 + 7 + 7.5 > 16
    assert not PricedModelGuided(relative_margin=0.0, followers=0.0).decide(replace(dear, lender_replicas=1)).admit
    assert PricedModelGuided(relative_margin=0.0, followers=1.0).decide(dear).admit  # 14 on four: 2 + 4 + 7.5 < 16
    joined = replace(dear, borrowed_replicas=1, switch_cost=SwitchCost(2.0, 0.0, 100.0))
    assert PricedModelGuided(relative_margin=0.0, followers=0.0).decide(joined).admit  # the merge is paid already


def test_priced_releases_when_the_rest_is_not_worth_it() -> None:
    policy, lease = PricedModelGuided(), LeaseView(0, R_ON_T, 0.0, 5.0, 1, True)
    # 16 s alone, 8 s together: helping (16 − C_out) / 2 seconds must exceed 2% of 16 s.
    assert not policy.release(lease, opportunity(switch_cost=SwitchCost(1.0, 15.0)))
    assert policy.release(lease, opportunity(switch_cost=SwitchCost(1.0, 15.5)))
    assert policy.release(lease, opportunity(lender_wait_seconds=0.5))
    assert not policy.release(lease, None)
    assert not ModelGuided().release(lease, opportunity(switch_cost=SwitchCost(1.0, 15.5)))


stages = st.lists(st.tuples(st.sampled_from(list(SubStage)), st.integers(1, 9000)), min_size=1, max_size=40).map(
    lambda chunks: TrainerWork(tuple(sorted(chunks, key=lambda c: list(SubStage).index(c[0]))))
)
trainer_models = st.builds(
    OracleTrainerModel,
    actor_update=st.builds(SubStageCost, st.floats(0, 1), st.floats(0.01, 1), st.floats(0.8, 1.5)),
    old_logprob=st.builds(SubStageCost, st.floats(0, 1), st.floats(0.01, 1), st.floats(0.8, 1.5)),
)
seconds = st.floats(0, 20)


@given(stages, seconds, trainer_models, st.integers(1, 6))
def test_drain_prefix_keeps_order_and_content(
    work: TrainerWork, limit: float, model: OracleTrainerModel, replicas: int
) -> None:
    rest = drain_prefix(work, limit, model, replicas)
    cut = len(work.chunks) - len(rest.chunks)
    assert rest.chunks == work.chunks[cut:]
    done = [model.predict(TrainerWork(work.chunks[:k]), replicas) <= limit for k in range(1, len(work.chunks) + 1)]
    assert cut == (done.index(False) if False in done else len(done)) or limit == 0


def _end_with_lease(work: TrainerWork, model: OracleTrainerModel, primaries: int, extra: int, start: float) -> float:
    """Event simulation: primaries pull chunks from time 0, auxiliaries from ``start``; nobody preempts."""
    free = [(0.0, i) for i in range(primaries)] + [(start, primaries + i) for i in range(extra)]
    heapq.heapify(free)
    end = 0.0
    for cost in model.chunk_costs(work.chunks):
        at, index = heapq.heappop(free)
        heapq.heappush(free, (at + cost, index))
        end = max(end, at + cost)
    return end


def training_window(
    work: TrainerWork, model: OracleTrainerModel, primaries: int, extra: int, cost: SwitchCost, **more: float
) -> Opportunity:
    """An opportunity to lend ``extra`` replicas to a training stage."""
    return opportunity(
        T_ON_R,
        primary_replicas=primaries,
        auxiliary_replicas=extra,
        trainer_work=work,
        trainer_model=model,
        switch_cost=cost,
        **more,
    )


@settings(max_examples=200)
@given(stages, trainer_models, st.integers(1, 4), st.integers(1, 4), seconds, seconds, seconds)
def test_no_admitted_training_window_ends_later(
    work: TrainerWork, model: OracleTrainerModel, primaries: int, extra: int, c_in: float, c_out: float, grad: float
) -> None:
    asked = training_window(work, model, primaries, extra, SwitchCost(c_in, c_out, grad))
    decision = ModelGuided().decide(asked)
    if decision.admit:
        merge = grad if any(stage is SubStage.ACTOR_UPDATE for stage, _ in work.chunks) else 0.0
        realised = _end_with_lease(work, model, primaries, extra, c_in) + c_out + merge
        assert realised <= decision.numbers["no_borrow_seconds"] * (1 + 1e-9)


works = st.builds(
    RolloutWork,
    num_sequences=st.integers(1, 600),
    context_tokens=st.floats(0, 2000),
    remaining_tokens=st.floats(1, 2000),
    longest_tokens=st.floats(1, 4000),
    prefill_tokens=st.floats(0, 1e5),
    max_num_seqs=st.sampled_from([4, 64]),
)
rollout_models = st.builds(
    OracleRolloutModel,
    prefill_seconds=st.floats(0, 1e-3),
    step_seconds=st.floats(1e-4, 0.05),
    token_seconds=st.floats(0, 1e-3),
    context_seconds=st.floats(0, 1e-7),
)


@given(works, rollout_models, st.integers(1, 8), st.integers(1, 8), seconds, seconds)
def test_no_admitted_rollout_window_ends_later(
    work: RolloutWork, model: OracleRolloutModel, primaries: int, extra: int, c_in: float, c_out: float
) -> None:
    asked = opportunity(
        primary_replicas=primaries,
        auxiliary_replicas=extra,
        rollout_work=work,
        rollout_model=model,
        switch_cost=SwitchCost(c_in, c_out),
    )
    alone = model.predict(work, primaries)
    if ModelGuided().decide(asked).admit:
        assert c_in + model.predict(work, primaries + extra) + c_out < alone * (1 + 1e-9)
    priced = PricedModelGuided().decide(asked)
    if priced.admit:
        assert priced.numbers["helping_seconds"] > 0 and c_in + c_out < alone


@settings(max_examples=60)
@given(
    st.sampled_from([ModelGuided(), PricedModelGuided()]),
    st.lists(st.tuples(works, stages, st.sampled_from(list(Direction))), min_size=1, max_size=8),
    st.tuples(st.floats(0.01, 3), st.floats(0.01, 3), st.floats(0.01, 3)),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_admissions_fall_to_zero_as_costs_scale(
    policy: AdmissionPolicy,
    cases: list[tuple[RolloutWork, TrainerWork, Direction]],
    cost: tuple[float, float, float],
    primaries: int,
    extra: int,
) -> None:
    before = len(cases)
    for scale in (0.0, 0.5, 1.0, 4.0, 1e9):
        switch = SwitchCost(*(scale * part for part in cost))
        admitted = sum(
            policy.decide(
                opportunity(
                    direction,
                    rollout_work=rollout,
                    trainer_work=trainer,
                    primary_replicas=primaries,
                    auxiliary_replicas=extra,
                    switch_cost=switch,
                )
            ).admit
            for rollout, trainer, direction in cases
        )
        assert admitted <= before
        before = admitted
    assert before == 0


@settings(max_examples=200)
@given(stages, trainer_models, st.integers(1, 4), st.integers(1, 4), seconds, seconds, seconds)
def test_no_training_window_that_priced_admits_ends_later(
    work: TrainerWork, model: OracleTrainerModel, primaries: int, extra: int, c_in: float, c_out: float, grad: float
) -> None:
    cost, wait = SwitchCost(c_in, c_out, grad), model.predict(work, primaries)
    asked = training_window(work, model, primaries, extra, cost, lender_wait_seconds=wait)
    decision = PricedModelGuided().decide(asked)
    if decision.admit:  # the step waits for the merge, and at s = 0 the next rollout for the switch-out
        realised = _end_with_lease(work, model, primaries, extra, c_in)
        merge = grad if any(stage is SubStage.ACTOR_UPDATE for stage, _ in work.chunks) else 0.0
        assert realised + merge + c_out <= decision.numbers["no_borrow_seconds"] * (1 + 1e-9)


def test_per_direction_and_hindsight() -> None:
    policy = PerDirection(rollout=Opportunistic())
    assert policy.decide(opportunity()).admit and not policy.decide(opportunity(T_ON_R)).admit
    assert not policy.release(LeaseView(0, T_ON_R, 0.0, 1.0, 1, True), None)
    plan = HindsightPlan(inner=Opportunistic(), refused_rollout=[3], refused_training=[4])
    assert [plan.decide(opportunity(version=v)).admit for v in (3, 4)] == [False, True]
    assert [plan.decide(opportunity(T_ON_R, version=v)).admit for v in (3, 4)] == [True, False]
    assert not plan.release(LeaseView(0, T_ON_R, 0.0, 1.0, 1, True), None)
