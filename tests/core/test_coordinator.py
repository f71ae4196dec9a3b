"""The coordinator over the simulated cluster: DESIGN's invariants under random workloads, policies and revocations."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidirl.core.errors import BidirlError, PolicyError
from bidirl.core.feeding import Feeder
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.job import JobSettings
from bidirl.core.opportunity import Decision, Opportunity
from bidirl.core.topology import build_topology
from bidirl.policies.baselines import NoBorrow, Opportunistic
from bidirl.policies.model_guided import ModelGuided
from tests.core.invariants import check_invariants
from tests.core.worlds import RandomPolicy, simulate, timings

jobs = st.builds(
    JobSettings,
    num_steps=st.integers(1, 6),
    groups_per_batch=st.integers(1, 8),
    group_size=st.integers(3, 4),
    staleness=st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0]),
    on_weight_update=st.sampled_from(["interrupt", "finish"]),
    max_tokens_per_chunk=st.sampled_from([64, 256, 1024]),
    max_groups_per_rollouter=st.integers(0, 3),
    calibration_steps=st.integers(0, 2),
    probe_switches=st.integers(0, 1),
    max_degenerate_batches=st.just(50),
    seed=st.integers(0, 1000),
)
pools = st.sampled_from([(1, 1), (2, 1), (1, 3), (3, 2), (0, 2)])


@given(
    jobs, pools, st.integers(0, 999), st.sampled_from([0.1, 1.0, 10.0]), st.sampled_from([0.0, 0.05, 1.0]), st.data()
)
@settings(max_examples=100, deadline=None)
def test_invariants_hold_under_random_policies(
    job: JobSettings, pool: tuple[int, int], policy_seed: int, balance: float, switch: float, data: st.DataObject
) -> None:
    """Any job, split, balance of the stages and switch cost; leases granted and revoked at random."""
    probability = data.draw(st.sampled_from([0.5, 0.8]), label="success_probability")
    admit, revoke = (1.0, 0.0) if pool[0] == 0 else (0.7, 0.1)
    policy = RandomPolicy(seed=policy_seed, admit=admit, revoke=revoke)
    world = timings(rollout=balance, switch=switch)
    summary, recorded = simulate(job, policy, build_topology(*pool), world=world, success_probability=probability)
    check_invariants(job, summary, recorded, sum(pool))


@pytest.mark.parametrize("consumption", ["pinned", "first_ready"])
@pytest.mark.parametrize("staleness", [0, 1])
def test_what_is_missing_is_the_same_as_groups_and_as_arrays(
    monkeypatch: pytest.MonkeyPatch, consumption: Literal["pinned", "first_ready"], staleness: int
) -> None:
    """On every event: the table that opportunities sum up says what the groups themselves say."""
    seen, on_event = [], Feeder.on_event

    def compare(feeder: Feeder, cause: str) -> None:
        on_event(feeder, cause)
        groups, arrays = feeder.missing(), feeder.missing_sequences(held=False)
        tokens = [tokens for group in groups for tokens in group.generated_tokens]
        assert arrays.num_groups == len(groups)
        assert arrays.generated.tolist() == tokens
        assert arrays.resident.tolist() == [group.running for group in groups for _ in group.generated_tokens]
        assert feeder.missing_sequences(held=True).num_groups >= len(groups)
        seen.append(any(tokens))

    monkeypatch.setattr(Feeder, "on_event", compare)
    job = JobSettings(
        num_steps=6, groups_per_batch=8, group_size=3, staleness=staleness, consumption=consumption, probe_switches=0
    )
    simulate(job, RandomPolicy(seed=1, revoke=0.5), build_topology(2, 1))
    assert any(seen)


@given(st.sampled_from([0, 1, 2]), st.integers(0, 999), pools.filter(lambda pool: pool[0] > 0))
@settings(max_examples=40, deadline=None)
def test_pinned_batches_are_a_function_of_the_seed(staleness: int, policy_seed: int, pool: tuple[int, int]) -> None:
    """Pinned consumption: batch k holds groups kB … in order, wholly of version max(0, k − s), whatever is borrowed."""
    job = JobSettings(num_steps=5, groups_per_batch=4, group_size=4, staleness=staleness, consumption="pinned")
    summary, recorded = simulate(job, RandomPolicy(seed=policy_seed), build_topology(*pool))
    check_invariants(job, summary, recorded, sum(pool))
    for row in (row for row in recorded.groups if row["event"] == "consumed"):
        assert row["step"] == row["group_id"] // 4
        assert {v for sample in row["versions"] for v, _ in sample} == {max(0, row["step"] - staleness)}


@pytest.mark.parametrize("staleness", [0.0, 0.5, 1.0])
def test_the_same_seed_gives_the_same_run(staleness: float) -> None:
    """Invariant 10: bit for bit, decisions and trace included."""
    job = JobSettings(num_steps=5, staleness=staleness, seed=3)
    runs = [simulate(job, ModelGuided()) for _ in range(2)]
    first, second = (json.dumps([summary, vars(recorded)], default=str) for summary, recorded in runs)
    assert first == second
    other, _ = simulate(JobSettings(num_steps=5, staleness=staleness, seed=4), ModelGuided())
    assert other["wall_seconds"] != runs[0][0]["wall_seconds"]


@pytest.mark.parametrize(("rollout", "train"), [(1.0, 0.3), (0.3, 1.0)])
@pytest.mark.parametrize("staleness", [0.0, 1.0])
def test_model_guided_borrowing_pays(rollout: float, train: float, staleness: float) -> None:
    """Cheap switches and unbalanced stages: borrowing is admitted in the needed direction and the run gets shorter."""
    job = JobSettings(num_steps=8, staleness=staleness, max_tokens_per_chunk=256)
    world = timings(rollout, train, switch=0.02)
    alone, _ = simulate(job, NoBorrow(), world=world)
    guided, _ = simulate(job, ModelGuided(), world=world)
    needed = "rollouter_on_trainpool" if rollout > train else "trainer_on_rollpool"
    assert guided["leases"][needed]["admitted"] > 0
    assert guided["throughput_tokens_per_second"] > 1.1 * alone["throughput_tokens_per_second"]


def test_model_guided_refuses_what_cannot_pay() -> None:
    """With switch costs above a whole stage the paper's rules refuse, and opportunistic borrowing loses time."""
    job = JobSettings(num_steps=6, staleness=1.0)
    world = timings(switch=30.0)
    alone, _ = simulate(job, NoBorrow(), world=world)
    guided, _ = simulate(job, ModelGuided(), world=world)
    greedy, _ = simulate(job, Opportunistic(), world=world)
    assert sum(guided["leases"][d]["admitted"] for d in guided["leases"]) == 0
    assert guided["wall_seconds"] == alone["wall_seconds"]
    assert greedy["wall_seconds"] > alone["wall_seconds"]


def test_degenerate_batches_are_dropped_and_bounded() -> None:
    """Equal rewards everywhere: no step, no version, groups dropped with the reason, and an end with advice."""
    job = JobSettings(num_steps=3, max_degenerate_batches=4)
    with pytest.raises(BidirlError, match="no trainable token"):
        simulate(job, NoBorrow(), success_probability=1.0)


class Broken(AdmissionPolicy):
    """Raises on the third opportunity."""

    def decide(self, opportunity: Opportunity) -> Decision:
        """Refuse twice, then fail."""
        if opportunity.opportunity_id == 2:
            raise KeyError("no such thing")
        return Decision(False, "not yet")


def test_an_exception_in_a_policy_names_it() -> None:
    """The run stops, names the policy and shows the opportunity."""
    with pytest.raises(PolicyError, match=r"Broken.*no such thing.*opportunity_id=2"):
        simulate(JobSettings(num_steps=3, staleness=0.0), Broken())
