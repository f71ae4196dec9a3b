"""Workload summaries: what a stage-time model is asked about, and what it learns from."""

from __future__ import annotations

from dataclasses import dataclass, fields

from bidirl.core.chunks import SubStage


@dataclass(frozen=True, slots=True)
class RolloutUsage:
    """What one rollout replica did (measured) or would do (predicted).

    Attributes:
        prefill_tokens: tokens prefilled, re-prefilled prefixes included.
        decode_steps: engine steps that decoded at least one token.
        decode_tokens: tokens decoded (sum over steps of the running sequences n).
        context_token_steps: sum over steps of the context tokens H held by the running sequences.
    """

    prefill_tokens: float = 0.0
    decode_steps: float = 0.0
    decode_tokens: float = 0.0
    context_token_steps: float = 0.0

    def __sub__(self, other: RolloutUsage) -> RolloutUsage:
        """Difference of two cumulative counters."""
        return RolloutUsage(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def __add__(self, other: RolloutUsage) -> RolloutUsage:
        """Sum of two counters."""
        return RolloutUsage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class RolloutWork:
    """Sequences that still have to be generated, summarised without knowing any one length.

    Attributes:
        num_sequences: sequences over all replicas.
        context_tokens: mean tokens already held per sequence (prompt and prefix).
        remaining_tokens: mean tokens still to decode per sequence.
        longest_tokens: expected largest remaining length over the sequences (at least the mean).
        prefill_tokens: tokens to prefill over all sequences.
        max_num_seqs: sequences that one replica runs at once.
    """

    num_sequences: int
    context_tokens: float
    remaining_tokens: float
    longest_tokens: float
    prefill_tokens: float
    max_num_seqs: int

    def usage(self, replicas: int) -> RolloutUsage:
        """Usage of the slowest of ``replicas`` replicas when the sequences are dealt out evenly.

        With more sequences than slots, steps follow the list-scheduling bound: the slots stay full for D / slots steps,
        then the longest sequence finishes alone.
        """
        per_replica = -(-self.num_sequences // replicas) if replicas else self.num_sequences
        if per_replica == 0:
            return RolloutUsage()
        share = per_replica / max(self.num_sequences, 1)
        decode = per_replica * self.remaining_tokens
        longest = max(self.longest_tokens, self.remaining_tokens)
        steps = longest
        if per_replica > self.max_num_seqs:
            steps = max(longest, decode / self.max_num_seqs + (longest - self.remaining_tokens) / 2)
        context = decode * (self.context_tokens + self.remaining_tokens / 2)
        return RolloutUsage(self.prefill_tokens * share, steps, decode, context)


@dataclass(frozen=True, slots=True)
class TrainerWork:
    """Stage-ordered chunks as ``(sub_stage, tokens)``, plus the bytes that a replica must communicate."""

    chunks: tuple[tuple[SubStage, int], ...]
    comm_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class SwitchCost:
    """Seconds to switch in, to switch out, and to merge gradients (C_in, C_out, C_grad)."""

    in_seconds: float
    out_seconds: float
    grad_seconds: float = 0.0
