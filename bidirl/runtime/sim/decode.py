"""Closed forms of decoding: k steps of n streams that hold H tokens, H growing by n per step. No state, no clock."""

from __future__ import annotations

from math import sqrt

from bidirl.models.sim_timings import RolloutTimings


def context_steps(steps: int, num_running: int, context_tokens: int) -> int:
    """Σ over ``steps`` steps of the context held at the beginning of each: k·H + n·k(k−1)/2."""
    return steps * context_tokens + num_running * (steps * (steps - 1) // 2)


def decode_seconds(timings: RolloutTimings, steps: int, num_running: int, context_tokens: int) -> float:
    """Seconds of ``steps`` steps that begin with ``context_tokens`` held."""
    return (
        timings.step_seconds * steps
        + timings.token_seconds * (steps * num_running)
        + timings.context_seconds * context_steps(steps, num_running, context_tokens)
    )


def steps_until(
    timings: RolloutTimings, began: float, now: float, limit: int, num_running: int, context_tokens: int
) -> int:
    """The fewest steps, at most ``limit``, that began at ``began`` and end at ``now`` or later.

    Solves the quadratic for a guess, and corrects it with the very expression that timers are set by.
    """

    def end(steps: int) -> float:
        return began + decode_seconds(timings, steps, num_running, context_tokens)

    steps = min(limit, int(_real_steps(timings, now - began, limit, num_running, context_tokens)))
    while steps < limit and end(steps) < now:
        steps += 1
    while steps > 0 and end(steps - 1) >= now:
        steps -= 1
    return steps


def _real_steps(timings: RolloutTimings, seconds: float, limit: int, num_running: int, context_tokens: int) -> float:
    """Steps as a real number: the inverse of :func:`decode_seconds`."""
    square = timings.context_seconds * num_running / 2.0
    linear = timings.step_seconds + timings.token_seconds * num_running
    linear += timings.context_seconds * context_tokens - square
    root = linear + sqrt(linear * linear + 4.0 * square * max(seconds, 0.0))
    return min(2.0 * seconds / root, float(limit)) if root > 0.0 else float(limit)
