"""``bidirl soak``: deterministic simulation testing of the coordinator, as many schedules as asked."""

from __future__ import annotations

from collections import Counter
from time import monotonic

from bidirl.core.errors import ConfigError
from bidirl.runtime.sim.soak import make_schedule, run_schedule

USAGE = """\
bidirl soak [--schedules N] [--seed S]

Runs the real coordinator on the simulated cluster under N (default 1000) schedules, with the seeds S, S+1, … (default
0). A seed decides the job, the devices, the policy and the faults. Stops at the first schedule that breaks an
invariant, loses a group or hangs, and prints the command that reproduces it (exit status 1).
"""


def main(options: list[str]) -> int:
    """Run the schedules; returns the exit status."""
    if "--help" in options or "-h" in options:
        print(USAGE, end="")
        return 0
    settings = {"--schedules": 1000, "--seed": 0}
    if len(options) % 2:
        raise ConfigError(f"bidirl soak: {options[-1]!r} has no value; use {' or '.join(settings)} with a number")
    for key, value in zip(options[::2], options[1::2], strict=True):
        if key not in settings or not value.isdigit():
            raise ConfigError(f"bidirl soak: {key} {value}: use {' or '.join(settings)} with a whole number")
        settings[key] = int(value)
    return _soak(settings["--seed"], settings["--schedules"])


def _soak(first: int, count: int) -> int:
    kinds: Counter[str] = Counter()
    injected: Counter[tuple[str, str]] = Counter()
    began = monotonic()
    for seed in range(first, first + count):
        try:
            outcome = run_schedule(make_schedule(seed))
        except Exception as error:
            print(f"schedule {seed} failed: {type(error).__name__}: {error}")
            print(f"reproduce it with: bidirl soak --schedules 1 --seed {seed}")
            return 1
        kinds[outcome.kind] += 1
        injected += outcome.injected
        if (seed + 1 - first) % 1000 == 0:
            print(f"{seed + 1 - first} simulated schedules, {monotonic() - began:.0f} s", flush=True)
    print(f"{count} simulated schedules passed, seeds {first} to {first + count - 1}: {kinds['completed']} completed,")
    print(f"{kinds['ended']} ended by a fault of a primary trainer, as they must. Faults injected, by verb and kind:")
    for (verb, kind), number in sorted(injected.items()):
        print(f"  {verb:16} {kind:10} {number}")
    return 0
