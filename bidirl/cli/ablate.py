"""``bidirl ablate``: policies × seeds on the simulated cluster, mean and 95% interval, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bidirl.cli.config import Config
from bidirl.cli.console import show
from bidirl.cli.options import last, policy_option, take, take_config_file
from bidirl.cli.parsing import parse_config
from bidirl.cli.worlds import simulate
from bidirl.core.errors import ConfigError
from bidirl.core.records import Recorder
from bidirl.core.topology import Direction
from bidirl.runtime.outputs.compare import SHORT
from bidirl.runtime.outputs.report import Chart, Interval, Report, interval

USAGE = "bidirl ablate CONFIG [--policy CLASS …] [--seeds N] [--output_dir DIR] [--key value …]"
BASELINES = ("NoBorrow", "RolloutOnly", "TrainOnly", "Opportunistic", "ModelGuided")
THROUGHPUT = "throughput_tokens_per_second"


@dataclass(frozen=True, slots=True)
class PolicyRuns:
    """Summaries of one policy's runs, one per seed, in the order of the seeds."""

    name: str
    summaries: tuple[Mapping[str, Any], ...]

    def values(self, key: str) -> list[float]:
        """One figure of every run."""
        return [float(summary[key]) for summary in self.summaries]

    def throughput(self) -> Interval:
        """Tokens trained per second over all devices."""
        return interval(self.values(THROUGHPUT))

    def speedup(self, base: PolicyRuns) -> Interval:
        """Throughput over that of ``base``, paired by seed."""
        return interval(ratios(self, base))

    def idle_share(self, pool: str) -> Interval:
        """Idle device-seconds of a pool over all of its device-seconds."""
        pools = [summary["device_seconds_by_pool"][pool] for summary in self.summaries]
        return interval([p["idle"] / max(sum(p.values()), 1e-12) for p in pools])

    def verdicts(self, direction: Direction) -> str:
        """Mean number of admitted and refused borrows."""
        counts = [summary["leases"][direction.value] for summary in self.summaries]
        admitted, refused = (sum(c[key] for c in counts) / len(counts) for key in ("admitted", "refused"))
        return f"{admitted:.1f}/{refused:.1f}"


def ratios(runs: PolicyRuns, base: PolicyRuns) -> list[float]:
    """Throughput over that of ``base``, seed by seed."""
    return [own / other for own, other in zip(runs.values(THROUGHPUT), base.values(THROUGHPUT), strict=True)]


def main(options: list[str]) -> int:
    """Print and write the table; returns the exit status."""
    file, rest = take_config_file(options, USAGE)
    own, rest = take(rest, "policy", "seeds", "output_dir")
    count = last(own["seeds"], "seeds", "5")
    if not count.isdigit() or int(count) < 2:
        raise ConfigError(f"--seeds is {count!r}: give a number of at least 2 (an interval needs several runs)")
    policies = policies_of(file, rest, own["policy"])
    results = run_policies(file, rest, policies, range(int(count)))
    config = parse_config(Config, file, rest, Config.UNBUILT["sim"]).value
    directory = Path(last(own["output_dir"], "output_dir", f"runs/{config.name}-ablation"))
    show(ablation_report(config.name, results, settings_note(config)), directory)
    return 0


def policies_of(file: Path, options: Sequence[str], named: Sequence[str]) -> list[str]:
    """The baselines, the config's own policy where it is another, and those named; each once."""
    config = parse_config(Config, file, options, Config.UNBUILT["sim"]).value
    cls = type(config.policy)
    own = [] if cls.__name__ in BASELINES and cls.__module__.startswith("bidirl.") else [""]
    return list(dict.fromkeys([*BASELINES, *own, *named]))


def run_policies(file: Path, options: Sequence[str], policies: Sequence[str], seeds: Sequence[int]) -> list[PolicyRuns]:
    """Run every policy with every seed; an empty name keeps the config's own policy."""
    names = [short_name(file, options, policy) for policy in policies]  # all are checked before anything runs
    return [
        PolicyRuns(name, tuple(run_cell(file, options, policy, seed) for seed in seeds))
        for name, policy in zip(names, policies, strict=True)
    ]


def run_cell(
    file: Path | None, options: Sequence[str], policy: str, seed: int, recorder: Recorder | None = None
) -> Mapping[str, Any]:
    """One simulated run; ``seed`` replaces the seeds of the job and of the workload."""
    config = parse_cell(file, options, policy, seed)
    config.simulation.workload.seed = seed
    return simulate(config, recorder)


def short_name(file: Path, options: Sequence[str], policy: str) -> str:
    """What the table calls a policy: its class, with its arguments where the user gives some."""
    found = parse_cell(file, options, policy, 0).policy
    return repr(found) if policy.lstrip().startswith("{") else type(found).__name__


def parse_cell(file: Path | None, options: Sequence[str], policy: str, seed: int) -> Config:
    """The config of one run; an empty ``policy`` keeps its own."""
    chosen = [*options, *policy_option(policy), f"--seed={seed}"]
    return parse_config(Config, file, chosen, Config.UNBUILT["sim"]).value


def settings_note(config: Config) -> str:
    """What was simulated, in one line."""
    topology, world = config.envelope.topology(), config.simulation
    bed = f"{world.model} on {world.testbed}, " if world.testbed else ""
    return (
        f"{bed}{len(topology.rollpool)} + {len(topology.trainpool)} devices, B = {config.groups_per_batch}, "
        f"G = {config.group_size}, s = {config.staleness:g}, cap {world.workload.max_response_tokens}, "
        f"{config.num_steps} steps"
    )


def ablation_report(name: str, results: Sequence[PolicyRuns], note: str, title: str = "") -> Report:
    """One row per policy; ratios are paired by seed with the first row."""
    base = results[0]
    rows = [
        (
            runs.name,
            runs.throughput().text(",.0f"),
            runs.speedup(base).text(".3f"),
            *(runs.verdicts(direction) for direction in SHORT),
            f"{runs.idle_share('rollpool').mean:.1%}",
            f"{runs.idle_share('trainpool').mean:.1%}",
        )
        for runs in results
    ]
    columns = (
        "policy", "tokens/s", f"over {base.name}", *(f"{x} admitted/refused" for x in SHORT.values()),
        "idle roll", "idle train",
    )  # fmt: skip
    seeds = len(base.summaries)
    chart = Chart("policy", f"throughput over {base.name}", tuple(r.name for r in results),
                  {"simulated": [r.speedup(base) for r in results]})  # fmt: skip
    notes = (f"simulated: {note}", f"mean ± half of the 95% interval over {seeds} seeds; ratios paired by seed")
    return Report("ablation", title or f"{name}: policies (simulated)", columns, tuple(rows), notes, chart)
