"""The metrics row of each version. Names follow the field where the meaning is the same (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from bidirl.core.chunks import ChunkResult
from bidirl.core.devices import Activity, productive_seconds
from bidirl.core.groups import Group
from bidirl.core.state import RunState


@dataclass(frozen=True, slots=True)
class StepMark:
    """Cumulative figures at the end of one step, for windows over steps."""

    seconds: float
    tokens: int
    device_seconds: Mapping[str, float]


class StepLog:
    """Writes one row per version, and keeps what the summary needs."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.marks = [StepMark(0.0, 0, state.board.seconds())]
        self.rewards: list[float] = []
        self.staleness: list[int] = []
        self.merge_seconds = 0.0

    def step(
        self,
        batch: Sequence[Group],
        version: int,
        times: Mapping[str, float],
        metrics: Mapping[str, float],
        results: Sequence[ChunkResult],
    ) -> None:
        """The step from ``version`` to ``version + 1`` is done."""
        state, last = self.state, self.marks[-1]
        now = state.now_seconds()
        tokens = sum(group.num_tokens for group in batch)
        mark = StepMark(now, last.tokens + tokens, state.board.seconds())
        staleness = [version - group.oldest_version for group in batch]
        lengths = [sample.num_tokens for group in batch for sample in group.samples]
        rewards = [s.reward for g in batch for s in g.samples if s.reward is not None and isfinite(s.reward)]
        partial = [group for group in batch if group.num_interruptions]
        self.staleness += staleness
        self.rewards.append(sum(rewards) / len(rewards) if rewards else float("nan"))
        elapsed = max(now - last.seconds, 1e-12)
        devices = state.cluster.topology
        row: dict[str, float] = {
            "version": version + 1,
            "time_seconds": now,
            "perf/throughput": tokens / elapsed,
            "perf/time_per_step": elapsed,
            **{f"timing_s/{name}": seconds for name, seconds in times.items()},
            "tokens/trained": tokens,
            "off_policy/staleness/mean": sum(staleness) / len(staleness),
            "off_policy/staleness/max": max(staleness),
            "partial/num": len(partial),
            "partial/ratio": len(partial) / len(batch),
            "partial/max_span": max(group.version_span for group in batch),
            "buffer/size": state.buffer.num_finished,
            "response_length/mean": sum(lengths) / len(lengths),
            "response_length/max": max(lengths),
            "response_length/min": min(lengths),
            "reward/mean": self.rewards[-1],
            "rollouter/idle_ratio": self._idle_ratio(devices.rollpool),
            "trainer/idle_ratio": self._idle_ratio(devices.trainpool),
        }
        spent = {k: mark.device_seconds[k] - last.device_seconds[k] for k in mark.device_seconds}
        row |= {f"bidirl/device_seconds/{name}": seconds for name, seconds in spent.items()}
        row["bidirl/util/cluster"] = productive_seconds(spent) / max(sum(spent.values()), 1e-12)
        row |= metrics
        for result in results:
            for name, value in (result.metrics or {}).items():
                row[name] = row.get(name, 0.0) + value
        self.marks.append(mark)
        state.recorder.step(row)

    def _idle_ratio(self, devices: Sequence[int]) -> float:
        """Share of the run so far in which these devices were idle."""
        spent = self.state.board.seconds(devices)
        return spent[Activity.IDLE] / max(sum(spent.values()), 1e-12)
