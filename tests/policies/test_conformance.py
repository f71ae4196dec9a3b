"""Every shipped class passes the conformance kit, and the kit finds the faults that it is for."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from bidirl.core.errors import PolicyError
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.opportunity import Decision, Opportunity
from bidirl.core.topology import Direction
from bidirl.models.checked import CheckedModel
from bidirl.models.oracle import OracleRolloutModel, OracleTrainerModel
from bidirl.models.rollout import CalibratedRolloutModel
from bidirl.models.table import TableRolloutModel, TableTrainerModel
from bidirl.models.trainer import CalibratedTrainerModel
from bidirl.models.trainer_base import SubStageCost
from bidirl.policies.baselines import NoBorrow, OneDirection, Opportunistic, RolloutOnly, TrainOnly
from bidirl.policies.chunk_rules import LazyPull
from bidirl.policies.envelopes import ColocatedEnvelope, FixedEnvelope
from bidirl.policies.group_rules import CapacityGroups
from bidirl.policies.model_guided import ModelGuided
from bidirl.policies.planned_envelope import PlannedEnvelope
from bidirl.policies.priced import PricedModelGuided
from bidirl.policies.published_gates import VerlDynamicSchedule, VerlSeparateAsync
from bidirl.policies.random_leases import RandomLeases
from bidirl.policies.splitters import CapacitySplit, ComposedSplitter, ResidualLengthSplit
from bidirl.testing import check_envelope, check_policy, check_splitter, check_stage_model
from bidirl.testing_views import ROLLOUT_WORKS, TRAINER_WORKS

TRAINER = OracleTrainerModel(actor_update=SubStageCost(0.1, 0.3, 1.1), comm_byte_seconds=1e-9, overlap_norm=2.0)
ROLLOUT = OracleRolloutModel(prefill_seconds=1e-4, step_seconds=0.02, token_seconds=1e-4, context_seconds=1e-8)


@pytest.mark.parametrize(
    "policy",
    [
        NoBorrow(),
        Opportunistic(),
        OneDirection(direction=Direction.TRAINER_ON_ROLLPOOL, inner=Opportunistic()),
        RolloutOnly(),
        TrainOnly(inner=PricedModelGuided()),
        ModelGuided(),
        ModelGuided(cold_start="admit"),
        PricedModelGuided(),
        VerlDynamicSchedule(),
        VerlSeparateAsync(causes=["step_finished"]),
        VerlSeparateAsync(),
        RandomLeases(seed=3, admit_probability=0.5),
    ],
    ids=repr,
)
def test_shipped_policies(policy: AdmissionPolicy) -> None:
    check_policy(policy)


@pytest.mark.parametrize(
    "splitter",
    [
        CapacitySplit(),
        CapacitySplit(rebalance=False, chunks=LazyPull(max_chunks=2)),
        ResidualLengthSplit(max_response_tokens=2048),
        ComposedSplitter(groups=CapacityGroups()),
    ],
    ids=repr,
)
def test_shipped_splitters(splitter: Any) -> None:
    check_splitter(splitter)


@pytest.mark.parametrize(
    "model",
    [
        CalibratedRolloutModel(),
        CalibratedTrainerModel(),
        CalibratedTrainerModel(fixed={"actor_update.exponent": 1.0}, overlap_norm=2.0),
        ROLLOUT,
        TRAINER,
        TableRolloutModel(step_seconds={1: 0.02, 16: 0.03, 64: 0.08}, prefill_seconds=1e-4),
        TableTrainerModel(actor_update={100: 0.1, 8000: 2.0}, old_logprob={100: 0.05, 8000: 0.7}),
        CheckedModel(inner=ROLLOUT),
        CheckedModel(inner=TRAINER),
    ],
    ids=lambda m: type(m).__name__,
)
def test_shipped_stage_models(model: Any) -> None:
    check_stage_model(model)


@pytest.mark.parametrize(
    "envelope",
    [
        FixedEnvelope(rollpool_devices=4, trainpool_devices=12, rollouter_layout_devices=2),
        ColocatedEnvelope(num_devices=8, trainer_layout_devices=4),
        PlannedEnvelope(
            num_devices=16,
            groups_per_batch=64,
            rollout_work=ROLLOUT_WORKS[2],
            trainer_work=TRAINER_WORKS[2],
            rollout_model=ROLLOUT,
            trainer_model=TRAINER,
        ),
    ],
    ids=lambda e: type(e).__name__,
)
def test_shipped_envelopes(envelope: Any) -> None:
    check_envelope(envelope)


class _Clock(AdmissionPolicy):
    def decide(self, opportunity: Opportunity) -> Decision:
        return Decision(time.monotonic() > 0, "clock")


class _Global(AdmissionPolicy):
    def decide(self, opportunity: Opportunity) -> Decision:
        return Decision(random.random() > 0.5, "coin")


class _Infinite(AdmissionPolicy):
    def decide(self, opportunity: Opportunity) -> Decision:
        return Decision(True, "always", benefit_seconds=float("inf"))


class _Learner(AdmissionPolicy):
    def decide(self, opportunity: Opportunity) -> Decision:
        opportunity.rollout_model.observe(None, 1.0)  # type: ignore[arg-type]
        return Decision(True, "always")


class _Counter(AdmissionPolicy):
    def __init__(self) -> None:
        self.calls = 0

    def decide(self, opportunity: Opportunity) -> Decision:
        self.calls += 1
        return Decision(self.calls % 3 == 0, f"call {self.calls}")


class _Loose(NoBorrow):
    def __init__(self, *, margin=1.0, **rest) -> None:  # type: ignore[no-untyped-def]
        pass


class _Broken(AdmissionPolicy):
    def decide(self, opportunity: Opportunity) -> Decision:
        raise KeyError("oops")


class _Nothing(AdmissionPolicy):
    def decide(self, opportunity: Opportunity) -> Decision:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (_Clock(), ["reads a clock", "now_seconds"]),
        (_Global(), ["global random generator"]),
        (_Infinite(), ["benefit_seconds=inf"]),
        (_Learner(), ["observe"]),
        (_Counter(), ["not deterministic"]),
        (_Loose(), ["**rest", "annotate margin"]),
        (_Broken(), ["KeyError"]),
        (_Nothing(), ["return a Decision"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_faults_name_the_line(policy: AdmissionPolicy, words: list[str]) -> None:
    with pytest.raises(PolicyError) as caught:
        check_policy(policy)
    assert "test_conformance.py:" in str(caught.value)
    for word in words:
        assert word in str(caught.value)
