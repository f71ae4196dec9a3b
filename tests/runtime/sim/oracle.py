"""A replica that goes token by token: slow, obvious, and written without looking at the closed forms."""

from __future__ import annotations

from dataclasses import dataclass, field

from bidirl.models.sim_timings import RolloutTimings


@dataclass
class Action:
    """At ``seconds``: group ``group_id`` arrives with these targets, or is interrupted (``targets`` is ``None``)."""

    seconds: float
    group_id: int
    prompt: int = 0
    targets: tuple[int, ...] | None = None


@dataclass
class Token:
    group_id: int
    index: int
    context: int
    left: int
    generated: int = 0


@dataclass
class Oracle:
    timings: RolloutTimings
    max_num_seqs: int
    kv_tokens: int | None
    waiting: list[Token] = field(default_factory=list)
    running: list[Token] = field(default_factory=list)
    interrupted: set[int] = field(default_factory=set)
    open: dict[int, int] = field(default_factory=dict)
    generated: dict[tuple[int, int], int] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    busy: float = 0.0
    prefill: float = 0.0
    steps: int = 0
    tokens: int = 0
    context_steps: int = 0

    def held(self) -> int:
        return sum(token.context for token in self.running)

    def close(self, token: Token, now: float) -> None:
        self.generated[token.group_id, token.index] = token.generated
        self.open[token.group_id] -= 1
        if not self.open[token.group_id]:
            self.ended[token.group_id] = now

    def act(self, action: Action) -> None:
        if action.targets is not None:
            self.open[action.group_id] = len(action.targets)
            for index, target in enumerate(action.targets):
                self.waiting.append(Token(action.group_id, index, action.prompt, target))
        elif self.open.get(action.group_id):
            self.interrupted.add(action.group_id)
            for token in [t for t in self.waiting if t.group_id == action.group_id]:
                self.waiting.remove(token)
                self.close(token, action.seconds)

    def boundary(self, now: float) -> int:
        for token in list(self.running):
            if token.left == 0 or token.group_id in self.interrupted:
                self.running.remove(token)
                self.close(token, now)
        while self.kv_tokens and len(self.running) > 1 and self.held() + len(self.running) > self.kv_tokens:
            self.waiting.insert(0, self.running.pop())
        prefill = 0
        while self.waiting and len(self.running) < self.max_num_seqs:
            needed = self.held() + len(self.running) + self.waiting[0].context + 1
            if self.kv_tokens and self.running and needed > self.kv_tokens:
                break
            prefill += self.waiting[0].context
            self.running.append(self.waiting.pop(0))
        return prefill

    def run(self, actions: list[Action]) -> None:
        actions = sorted(actions, key=lambda action: action.seconds)
        now, t = 0.0, self.timings
        while True:
            prefill = self.boundary(now)
            if prefill and t.prefill_seconds:
                end, cut = now + t.prefill_seconds * prefill, False
                while actions and actions[0].seconds < end and not cut:
                    action = actions.pop(0)
                    self.act(action)
                    if all(token.group_id in self.interrupted for token in self.running):
                        end, cut = action.seconds, True
                self.prefill += (end - now) / t.prefill_seconds
                self.busy += end - now
                now = end
                continue
            self.prefill += prefill
            if self.running:
                n, h = len(self.running), self.held()
                cost = t.step_seconds + t.token_seconds * n + t.context_seconds * h
                while actions and actions[0].seconds < now + cost:
                    self.act(actions.pop(0))
                self.busy += cost
                now += cost
                self.steps += 1
                self.tokens += n
                self.context_steps += h
                for token in self.running:
                    token.generated += 1
                    token.context += 1
                    token.left -= 1
            elif actions:
                now = actions[0].seconds
                self.act(actions.pop(0))
            else:
                return
