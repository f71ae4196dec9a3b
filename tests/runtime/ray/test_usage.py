"""The usage counters follow context exactly."""

from types import SimpleNamespace

from bidirl.core.work import RolloutUsage
from bidirl.runtime.ray.usage import UsageMeter


def step(prefilled=0, decoded=0, finished=()):
    ended = [SimpleNamespace(num_prompt_tokens=p, num_generation_tokens=g) for p, g in finished]
    return SimpleNamespace(num_prompt_tokens=prefilled, num_generation_tokens=decoded, finished_requests=ended)


def test_context_grows_by_one_token_per_sequence_and_step():
    meter = UsageMeter()
    meter.enter()
    meter.enter()
    meter.record(step(prefilled=30, decoded=2))
    meter.record(step(decoded=2, finished=[(10, 2)]))
    meter.leave()
    meter.record(step(decoded=1))
    assert meter.usage == RolloutUsage(30, 3, 5, 30 + 32 + 22)


def test_aborted_requests_leave_the_context():
    meter = UsageMeter()
    meter.enter()
    meter.enter()
    meter.record(step(prefilled=20, decoded=2))
    meter.aborted(10, 1)
    meter.leave()
    meter.record(step(decoded=1))
    assert meter.usage.context_token_steps == 20 + 11


def test_busy_seconds_are_the_union_of_requests():
    meter = UsageMeter()
    meter.enter()
    meter.enter()
    meter.leave()
    assert meter.active == 1
    meter.leave()
    first = meter.busy_seconds
    assert meter.busy_seconds == first
