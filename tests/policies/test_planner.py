"""Algorithm 1 against brute force, its accounting, its messages and its size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.core.topology import Role
from bidirl.core.work import RolloutWork, TrainerWork
from bidirl.models.oracle import OracleRolloutModel, OracleTrainerModel
from bidirl.models.trainer_base import SubStageCost
from bidirl.policies.envelopes import ColocatedEnvelope, FixedEnvelope
from bidirl.policies.planned_envelope import PlannedEnvelope
from bidirl.policies.planner import Placement, Plan, plan

TRAIN = TrainerWork(tuple((stage, 3000 + 100 * i) for stage in SubStage for i in range(16)))
ROLL = RolloutWork(512, 200.0, 600.0, 2000.0, 1e5, 64)


class CountingRollout(OracleRolloutModel):
    calls = 0

    def predict(self, work: RolloutWork, replicas: int) -> float:
        type(self).calls += 1
        return super().predict(work, replicas)


class CountingTrainer(OracleTrainerModel):
    calls = 0

    def predict(self, work: TrainerWork, replicas: int) -> float:
        type(self).calls += 1
        return super().predict(work, replicas)


def run(
    num_devices: int,
    step: float = 0.02,
    update: float = 0.3,
    layouts: tuple[int, int] = (1, 1),
    placement: Placement | None = None,
) -> Plan:
    rollout = CountingRollout(prefill_seconds=1e-5, step_seconds=step, token_seconds=1e-4)
    trainer = CountingTrainer(actor_update=SubStageCost(0.01, update), old_logprob=SubStageCost(0.01, update / 3))
    CountingRollout.calls = CountingTrainer.calls = 0
    return plan(num_devices, 64, ROLL, TRAIN, rollout, trainer, *layouts, placement)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 48),
    st.floats(1e-3, 0.1),
    st.floats(0.01, 3),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_against_brute_force(
    devices: int, step: float, update: float, rollouter: int, trainer: int, nodes: bool, aux_r: bool, aux_t: bool
) -> None:
    placement = Placement(4, nodes, aux_r, aux_t)
    legal = [
        roll
        for roll in range(1, devices)
        if roll % rollouter == 0
        and (devices - roll) % trainer == 0
        and not (aux_t and roll % trainer)
        and not (aux_r and (devices - roll) % rollouter)
        and not (nodes and (roll % 4 or devices % 4))
    ]
    if not legal:
        with pytest.raises(ConfigError, match="use at least"):
            run(devices, step, update, (rollouter, trainer), placement)
        return
    found = run(devices, step, update, (rollouter, trainer), placement)
    assert CountingRollout.calls == CountingTrainer.calls == len(legal)
    assert len(found.ranked) + len(found.excluded) == devices - 1
    assert all(excluded.reason for excluded in found.excluded)
    rollout_model = OracleRolloutModel(prefill_seconds=1e-5, step_seconds=step, token_seconds=1e-4)
    trainer_model = OracleTrainerModel(
        actor_update=SubStageCost(0.01, update), old_logprob=SubStageCost(0.01, update / 3)
    )
    best, best_rate = 0, 0.0
    for roll in legal:
        rate = min(
            64 / rollout_model.predict(ROLL, roll // rollouter),
            64 / trainer_model.predict(TRAIN, (devices - roll) // trainer),
        )
        if rate > best_rate * (1 + 1e-12):
            best, best_rate = roll, rate
    assert found.chosen.groups_per_second == pytest.approx(best_rate)
    assert found.chosen.rollpool_devices == best


def test_the_smallest_budget_in_the_message_works() -> None:
    with pytest.raises(ConfigError, match="use at least 12 devices"):
        run(9, layouts=(2, 3))
    assert run(12, layouts=(2, 3)).chosen.rollpool_devices == 6
    with pytest.raises(ConfigError, match="use at least 16 devices"):
        run(12, placement=Placement(8, whole_nodes=True))


class Memory:
    """80 GB devices; a rollouter needs 100 GB in all, a trainer ``trainer_bytes``."""

    def __init__(self, trainer_bytes: float) -> None:
        self.trainer_bytes = trainer_bytes

    def shortage_bytes(self, role: Role, layout_devices: int) -> float:
        return (100e9 if role is Role.ROLLOUTER else self.trainer_bytes) / layout_devices - 80e9


def envelope(devices: int, trainer_bytes: float) -> PlannedEnvelope:
    return PlannedEnvelope(
        num_devices=devices,
        groups_per_batch=64,
        rollout_work=ROLL,
        trainer_work=TRAIN,
        rollout_model=OracleRolloutModel(prefill_seconds=1e-5, step_seconds=0.02),
        trainer_model=OracleTrainerModel(actor_update=SubStageCost(0.01, 0.3)),
        memory=Memory(trainer_bytes),
    )


def test_smallest_layouts_that_fit() -> None:
    topology = envelope(16, 300e9).topology()
    assert len(topology.primary_rollouters[0].devices) == 2 and len(topology.primary_trainers[0].devices) == 4
    with pytest.raises(ConfigError, match="use at least 32"):
        envelope(16, 2000e9).topology()
    with pytest.raises(ConfigError, match="memory"):
        envelope(16, 1e18).topology()


def test_other_envelopes() -> None:
    assert len(FixedEnvelope(rollpool_devices=1, trainpool_devices=1).topology().workers) == 4
    colocated = ColocatedEnvelope(num_devices=4).topology()
    assert not colocated.primary_rollouters and len(colocated.auxiliary_rollouters) == 4
    for bad in (FixedEnvelope(rollpool_devices=0, trainpool_devices=2), ColocatedEnvelope(num_devices=0)):
        with pytest.raises(ConfigError, match="use at least 1"):
            bad.topology()


def test_4096_devices() -> None:
    found = run(4096)
    assert len(found.ranked) == 4095 and CountingTrainer.calls == 4095
