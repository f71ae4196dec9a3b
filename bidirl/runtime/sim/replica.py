"""One simulated rollout replica: continuous batching, advanced analytically from completion to completion.

At every step boundary the replica admits what fits, first in first out. Admission prefills the newcomers' contexts
(τ_pre per token) while decoding stalls; then all running streams decode in lockstep. A call that arrives in the middle
of a step is admitted at the step's end, and an interrupt takes effect there as well, so that every token is whole. A
prefill is cut short where everything that runs has been interrupted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from bidirl.core.cluster import RolloutReport
from bidirl.core.errors import WorkerError
from bidirl.core.groups import Group
from bidirl.core.work import RolloutUsage
from bidirl.models.sim_timings import RolloutTimings
from bidirl.runtime.sim.decode import context_steps, decode_seconds, steps_until
from bidirl.runtime.sim.streams import Call, Stream

_IDLE, _PREFILL, _DECODE = "idle", "prefill", "decode"


class SimReplica:
    """Runs the samples of ``generate`` calls. Owns one timer: the next moment at which anything can change.

    Args:
        timings: coefficients of this replica; may be replaced while it is idle.
        max_num_seqs: streams that run at once.
        kv_tokens: context tokens that fit in memory; ``None`` is unlimited. When a step would outgrow it, the stream
            that was admitted last is preempted and prefilled again later; a lone stream may exceed it.
    """

    def __init__(self, timings: RolloutTimings, max_num_seqs: int, kv_tokens: int | None = None) -> None:
        self.timings = timings
        self.max_num_seqs = max_num_seqs
        self.kv_tokens = kv_tokens
        self.version = 0
        self.busy_seconds = 0.0
        self.num_preemptions = 0
        self._prefill_tokens = 0.0
        self._steps = self._decode_tokens = self._context_token_steps = 0
        self._calls: dict[int, Call] = {}
        self._interrupted: list[Call] = []
        self._waiting: deque[Stream] = deque()
        self._running: dict[Stream, None] = {}
        self._finish: list[tuple[int, int, Stream]] = []
        self._num_admissions = 0
        self._context = 0
        self._phase = _IDLE
        self._began = 0.0
        self._planned = 0
        self._timer: asyncio.TimerHandle | None = None

    # -- verbs -------------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no call is in the engine."""
        return not self._calls

    @property
    def usage(self) -> RolloutUsage:
        """Cumulative counters up to the last boundary; ``busy_seconds`` goes exactly as far."""
        return RolloutUsage(self._prefill_tokens, self._steps, self._decode_tokens, self._context_token_steps)

    async def generate(self, group: Group, targets: Sequence[int], cap: int, rewards: Sequence[float]) -> RolloutReport:
        """Run the unfinished samples of ``group`` to their target lengths, or as far as an interrupt lets them."""
        assert group.group_id not in self._calls, f"group {group.group_id} is already running here"
        call = Call(group, targets, asyncio.get_running_loop().create_future())
        if not call.num_open:
            return RolloutReport(group, self.usage, self.busy_seconds)
        self._calls[group.group_id] = call
        self._waiting.extend(call.streams)
        if self._phase is _IDLE:
            self._boundary()
        elif self._phase is _DECODE and len(self._running) < self.max_num_seqs:
            self._stop_at_step_end()
        try:
            await call.done
        except asyncio.CancelledError:
            self.interrupt((group.group_id,))
            raise
        return RolloutReport(call.result(self.version, cap, rewards), call.usage, call.busy_seconds)

    def interrupt(self, group_ids: Iterable[int]) -> None:
        """Take these groups out at the end of the running step, or now where none of their streams runs."""
        for group_id in group_ids:
            call = self._calls.get(group_id)
            if call is not None and not call.interrupted:
                call.interrupted = True
                self._interrupted.append(call)
                self._drop_waiting(call)
        if self._phase is _DECODE:
            # Whoever waited behind what was taken out may fit now.
            may_admit = bool(self._waiting) and len(self._running) < self.max_num_seqs
            if may_admit or any(call.num_open for call in self._interrupted):
                self._stop_at_step_end()
        elif self._phase is _PREFILL and all(stream.call.interrupted for stream in self._running):
            self._cut_prefill()

    def close(self) -> None:
        """Nothing will happen here any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def fail(self, error: WorkerError) -> None:
        """The replica is dead: every call raises, and nothing happens here any more."""
        self.close()
        calls = tuple(self._calls.values())
        self._calls.clear()
        for call in calls:
            call.fail(error)

    # -- boundaries --------------------------------------------------------------------------------------------------

    def _boundary(self) -> None:
        """Between two steps: streams end, are taken out, preempted or admitted; then the next phase is planned."""
        self._take_finished()
        self._take_interrupted()
        self._preempt()
        prefill = self._admit()
        self._began = asyncio.get_running_loop().time()
        if prefill and self.timings.prefill_seconds:
            self._phase, self._planned = _PREFILL, prefill
            self._wake_at(self._began + self.timings.prefill_seconds * prefill)
            return
        self._prefill_tokens += prefill
        self._plan_decode()

    def _plan_decode(self) -> None:
        if not self._running:
            self._phase = _IDLE
            return
        finish, num_running = self._finish, len(self._running)
        while finish[0][2].admission != finish[0][1]:
            heappop(finish)
        steps = finish[0][0] - self._steps
        if self.kv_tokens is not None and num_running > 1:
            steps = min(steps, (self.kv_tokens - self._context) // num_running)
        self._phase, self._planned = _DECODE, steps
        self._wake_at(self._began + decode_seconds(self.timings, steps, num_running, self._context))

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._wake)

    def _wake(self) -> None:
        """What was planned is over."""
        self._timer = None
        if self._phase is _PREFILL:
            self._prefill_tokens += self._planned
            self.busy_seconds += self.timings.prefill_seconds * self._planned
            self._began = asyncio.get_running_loop().time()
            if self._interrupted or (self._waiting and len(self._running) < self.max_num_seqs):
                self._boundary()
            else:
                self._plan_decode()
            return
        steps, num_running = self._planned, len(self._running)
        self.busy_seconds += decode_seconds(self.timings, steps, num_running, self._context)
        self._context_token_steps += context_steps(steps, num_running, self._context)
        self._decode_tokens += steps * num_running
        self._steps += steps
        self._context += steps * num_running
        self._boundary()

    def _stop_at_step_end(self) -> None:
        """Shorten the planned decode to the first step end from now on."""
        now = asyncio.get_running_loop().time()
        num_running, context = len(self._running), self._context
        steps = steps_until(self.timings, self._began, now, self._planned, num_running, context)
        if steps < self._planned:
            self._planned = steps
            self._wake_at(self._began + decode_seconds(self.timings, steps, num_running, context))

    def _cut_prefill(self) -> None:
        """Nobody wants what is being prefilled: count it as far as it came."""
        elapsed = asyncio.get_running_loop().time() - self._began
        self._prefill_tokens += min(float(self._planned), elapsed / self.timings.prefill_seconds)
        self.busy_seconds += elapsed
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._boundary()

    # -- streams -----------------------------------------------------------------------------------------------------

    def _take_finished(self) -> None:
        finish = self._finish
        while finish and finish[0][0] <= self._steps:
            _, admission, stream = heappop(finish)
            if stream.admission == admission:
                self._take_out(stream)
                self._close_stream(stream.call)

    def _take_interrupted(self) -> None:
        for call in self._interrupted:
            for stream in call.streams:
                if stream.admission:
                    self._take_out(stream)
                    self._close_stream(call)
        self._interrupted.clear()

    def _take_out(self, stream: Stream) -> None:
        del self._running[stream]
        self._context -= stream.leave(self._steps)

    def _close_stream(self, call: Call) -> None:
        call.num_open -= 1
        if not call.num_open:
            del self._calls[call.group.group_id]
            call.close(self.usage, self.busy_seconds)

    def _drop_waiting(self, call: Call) -> None:
        if call.num_waiting:
            self._waiting = deque(stream for stream in self._waiting if stream.call is not call)
            for _ in range(call.num_waiting):
                self._close_stream(call)
            call.num_waiting = 0

    def _preempt(self) -> None:
        if self.kv_tokens is None:
            return
        while len(self._running) > 1 and self._context + len(self._running) > self.kv_tokens:
            stream = next(reversed(self._running))
            self._take_out(stream)
            stream.call.num_waiting += 1
            self._waiting.appendleft(stream)
            self.num_preemptions += 1

    def _admit(self) -> int:
        """Start what fits; returns the tokens to prefill."""
        prefill = 0
        while self._waiting and len(self._running) < self.max_num_seqs:
            stream = self._waiting[0]
            if not self._fits(stream):
                break
            self._waiting.popleft()
            stream.call.num_waiting -= 1
            self._num_admissions += 1
            stream.admission, stream.admitted_step = self._num_admissions, self._steps
            self._running[stream] = None
            heappush(self._finish, (self._steps + stream.remaining, stream.admission, stream))
            self._context += stream.context_tokens
            prefill += stream.context_tokens
        return prefill

    def _fits(self, stream: Stream) -> bool:
        if self.kv_tokens is None or not self._running:
            return True
        return self._context + len(self._running) + stream.context_tokens + 1 <= self.kv_tokens
