"""``bidirl neutrality``: the same job with and without borrowing, compared bit for bit (invariant 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bidirl.cli.config import Config
from bidirl.cli.options import last, take
from bidirl.cli.parsing import parse_config
from bidirl.core.digests import chained
from bidirl.core.errors import ConfigError
from bidirl.core.interfaces import AdmissionPolicy
from bidirl.core.records import Recorder, Row
from bidirl.policies.baselines import NoBorrow
from bidirl.policies.random_leases import RandomLeases

USAGE = """\
bidirl neutrality CONFIG [--world ray|sim] [--num_random N] [--key value …]

Runs the job of CONFIG with pinned consumption and exact gradient merge, first without borrowing, then N times (default
1) borrowing in both directions whenever it can, with leases revoked at random. Compares, per version, a hash of the
parameters and a hash of everything that was consumed. Exit status 0: all equal; 1: they differ, or nothing was lent.
"""


@dataclass
class VersionHashes(Recorder):
    """Keeps what two runs must agree on.

    Attributes:
        consumed: hash of each batch, by the version trained from.
        parameters: hash of the parameters, by version.
        num_leases: leases that were closed, by direction.
        num_interruptions: interruptions of consumed groups.
    """

    consumed: dict[int, str] = field(default_factory=dict)
    parameters: dict[int, str] = field(default_factory=dict)
    num_leases: dict[str, int] = field(default_factory=dict)
    num_interruptions: int = 0

    def ledger(self, row: Row) -> None:
        """Consumed groups come in batch order, before the hash of the version that they lead to."""
        if row["event"] == "consumed":
            version = row["version"]
            self.consumed[version] = chained(self.consumed.get(version, ""), (str(row["group_id"]), row["digest"]))
            self.num_interruptions += row["interruptions"]
        elif row["event"] == "stepped":
            self.parameters[row["version"]] = row["parameters"]

    def lease(self, row: Row) -> None:
        """Count it."""
        if row["state"] == "closed":
            self.num_leases[row["direction"]] = self.num_leases.get(row["direction"], 0) + 1


def first_difference(one: VersionHashes, other: VersionHashes) -> str | None:
    """The first version at which two runs differ, and in what; ``None`` if they are equal."""
    for version in sorted(one.consumed.keys() | other.consumed.keys()):
        if one.consumed.get(version) != other.consumed.get(version):
            return f"the batch that leads to version {version + 1} differs"
        if one.parameters.get(version + 1) != other.parameters.get(version + 1):
            return f"the parameters of version {version + 1} differ, although the same batches were consumed"
    return None


def main(options: list[str]) -> int:
    """Run and compare; returns the exit status."""
    if not options or "--help" in options or "-h" in options:
        print(USAGE, end="")
        return 0 if options else 2
    own, options = take(options, "world", "num_random")
    world, count = last(own["world"], "world", "ray"), last(own["num_random"], "num_random", "1")
    if world not in ("ray", "sim"):
        raise ConfigError(f"--world is {world!r}: use ray or sim")
    if not count.isdigit() or int(count) < 1:
        raise ConfigError(f"--num_random is {count!r}: it must be a whole number from 1 up")
    policies: list[AdmissionPolicy] = [NoBorrow(), *(RandomLeases(seed=i + 1) for i in range(int(count)))]
    runs = [_run(options, world, policy) for policy in policies]
    return report(list(map(repr, policies)), runs)


def report(names: Sequence[str], runs: Sequence[VersionHashes]) -> int:
    """Print the comparison of every run with the first; returns the exit status."""
    status, base = 0, runs[0]
    latest = max(base.parameters, default=0)
    print(f"{names[0]}: {latest} versions, parameters of the last {base.parameters.get(latest, 'none')[:16]}")
    for name, run in zip(names[1:], runs[1:], strict=True):
        lent = ", ".join(f"{n} {direction}" for direction, n in sorted(run.num_leases.items())) or "none"
        print(f"{name}: leases: {lent}; {run.num_interruptions} interruptions of consumed groups")
        difference = first_difference(base, run)
        if difference is None and len(run.num_leases) == 2:
            print(f"  identical in all {latest} versions: batches and parameters")
            continue
        status = 1
        print(f"  {difference or 'identical, but not both directions borrowed: this shows nothing, run more steps'}")
    return status


def _run(options: list[str], world: str, policy: AdmissionPolicy) -> VersionHashes:
    """One run; parsed afresh, since stage models learn."""
    from bidirl.cli import worlds

    fixed = ["--consumption", "pinned", "--record_digests", "true", "--tracking", "none"]
    if world == "ray":
        fixed += ["--ray.gradient_merge", "exact"]
        fixed += ["--ray.rollout_dtype", "float32", "--ray.trainer_dtype", "float32"]
    parsed = parse_config(Config, Path(options[0]), [*options[1:], *fixed], unbuilt=Config.UNBUILT[world])
    config, hashes = replace(parsed.value, policy=policy), VersionHashes()
    worlds.run(config, world, parsed.resolved_yaml, ["bidirl", "neutrality"], observer=hashes)
    return hashes
