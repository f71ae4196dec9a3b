"""Checks against published figures that nothing here was fitted to. ``python -m experiments.external``. Simulated.

Ratios of schedule disciplines and seconds per step, from other systems on other GPUs; beside each what differs.
"""

from __future__ import annotations

from dataclasses import dataclass

from bidirl.cli.ablate import PolicyRuns, ratios, run_policies
from bidirl.runtime.outputs.report import NOT_RUN, Interval, Report, interval
from experiments.sweeps import H100, arguments, lengths, publish, split

NEMO, VERL_ASYNC = "NeMo-RL docs performance-summary", "verl docs advance/fully_async.md"
VERL_DYNAMIC, EASYR1 = "verl docs dynamic_schedule.md", "EasyR1 assets/baselines.md"


@dataclass(frozen=True, slots=True)
class Side:
    """One discipline: a policy, and options that replace keys of the config."""

    policy: str
    options: tuple[str, ...]

    def runs(self, common: tuple[str, ...], seeds: int) -> PolicyRuns:
        """Its simulated runs."""
        return run_policies(H100, (*common, *self.options), [self.policy], range(seeds))[0]


@dataclass(frozen=True, slots=True)
class Check:
    """A published ratio of two disciplines, and how it is simulated.

    Attributes:
        text: what over what.
        published: the figure, with its set-up.
        source: where it is from.
        common: options of both sides.
        over: the numerator.
        under: the denominator.
        differs: what is not as published.
    """

    text: str
    published: str
    source: str
    common: tuple[str, ...]
    over: Side
    under: Side
    differs: str

    def simulated(self, seeds: int) -> Interval:
        """Ratio of throughputs, paired by seed."""
        return interval(ratios(self.over.runs(self.common, seeds), self.under.runs(self.common, seeds)))


def colocated(devices: int, layout: int) -> Side:
    """All devices alternate between the stages, on policy."""
    envelope = f"{{num_devices: {devices}, trainer_layout_devices: {layout}}}"
    options = f"--envelope={{class_path: ColocatedEnvelope, init_args: {envelope}}}"
    return Side("Opportunistic", (options, "--staleness=0"))


def model(name: str, batch: int, group: int, median: float, cap: int) -> tuple[str, ...]:
    """Options of a language model and its responses."""
    sizes = lengths(groups_per_batch=batch, group_size=group, median_response_tokens=median, max_response_tokens=cap)
    return (f"--simulation.model={name}", f"--groups_per_batch={batch}", f"--group_size={group}", *sizes)


DAPO = model("qwen2.5-7b", 64, 16, 2000, 28672)
LONG = model("qwen3-4b", 256, 8, 2400, 8192)
OTHER_MODEL = "H20 and a mixture of experts there; H100 and dense Qwen3-4B here; batch and lengths assumed"
CHECKS = (
    Check("16 + 16 asynchronous over 32 colocated", "2.68 (790.1 / 294.8 s), Qwen2.5-Math-7B, 32 H20, DAPO", VERL_ASYNC,
          DAPO, Side("NoBorrow", (split(16, 16, 2), "--staleness=0.5")), colocated(32, 2),
          "H20 there, H100 here; lengths assumed (median 2,000)"),
    Check("one step off over 32 colocated", "1.26 (192 / 152 s), Qwen3-30B-A3B, 32 H100, mean 3.2k tokens", NEMO,
          LONG, Side("NoBorrow", (split(16, 16, 2), "--staleness=1")), colocated(32, 2),
          "a mixture of experts there, dense Qwen3-4B here; split assumed"),
    Check("one-direction gate over 8 + 24", "1.153, Qwen3.5-35B-A3B, 32 H20", VERL_DYNAMIC,
          (*LONG, split(8, 24, 2)), Side("VerlDynamicSchedule", ()), Side("NoBorrow", ()), OTHER_MODEL),
    Check("one-direction gate over 16 + 16", "1.175, Qwen3.5-35B-A3B, 32 H20", VERL_DYNAMIC,
          (*LONG, split(16, 16, 2)), Side("VerlDynamicSchedule", ()), Side("NoBorrow", ()), OTHER_MODEL),
    Check("trainers lent by the gate's rule, 4 + 28", "none published", VERL_DYNAMIC,
          (*LONG, split(4, 28, 2)), Side("VerlDynamicSchedule", ()), Side("NoBorrow", ()),
          "not a check: a split where rollout is the bottleneck"),
)  # fmt: skip
STEPS = (
    ("Qwen2.5-VL-3B, Geo3K, 8 H100, 512 × 5", "qwen2.5-3b", 1, "180", "text model alone; one optimizer step, not four"),
    ("Qwen2.5-VL-7B, Geo3K, 8 H100, 512 × 5", "qwen2.5-7b", 2, "170–180",
     "no check of training: its efficiency on H100 is from this row; text model alone"),
)  # fmt: skip
NOT_SIMULATED = (
    ("Qwen2-7B GSM8K, 8 H20", "170", "verl-data gsm8k log: no source for H20's memory bandwidth"),
    ("Qwen3-4B DAPO-Math, 32 GPUs", "72–160", "UniRL issue 40: GPU and batch are not stated"),
    ("Qwen3.5-9B Geo3K, 8 H800", "290", "verl issue 7203: neither model nor GPU is described here"),
)


def ratio_report(seeds: int) -> Report:
    """Disciplines over disciplines."""
    rows = [(c.text, c.published, c.simulated(seeds).text(".2f"), c.differs, c.source) for c in CHECKS]
    notes = (f"simulated; ratios of throughput, mean ± half of the 95% interval over {seeds} seeds, paired by seed",)
    columns = ("ratio", "published", "simulated", "what differs", "source")
    return Report("external_ratios", "Published ratios beside simulated ones", columns, tuple(rows), notes)


def step_report(seeds: int) -> Report:
    """Seconds per step of colocated training."""
    rows = []
    for text, name, layout, published, differs in STEPS:
        common = model(name, 512, 5, 230, 2048)
        prompts = tuple(lengths(median_prompt_tokens=370))
        found = colocated(8, layout).runs((*common, *prompts), seeds)
        seconds = [a / b for a, b in zip(found.values("wall_seconds"), found.values("steps"), strict=True)]
        rows.append((text, published, interval(seconds).text(".0f"), differs, EASYR1))
    rows += [(text, published, NOT_RUN, reason, "CONSTANTS §2.3") for text, published, reason in NOT_SIMULATED]
    notes = (
        "simulated; colocated, on policy; 675 tokens per sample as published, shared out as 370 + a mean of 305",
        f"mean ± half of the 95% interval over {seeds} seeds",
    )
    columns = ("job", "published s per step", "simulated s per step", "what differs", "source")
    return Report("external_steps", "Published seconds per step beside simulated ones", columns, tuple(rows), notes)


def main() -> None:
    """Run, print, write."""
    given = arguments(__doc__)
    publish([ratio_report(given.seeds), step_report(given.seeds)], given.output_dir)


if __name__ == "__main__":
    main()
