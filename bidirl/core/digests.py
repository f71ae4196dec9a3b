"""Hashes by which two runs are compared bit for bit: of a consumed group, and of everything consumed so far."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from bidirl.core.groups import Group


def group_digest(group: Group) -> str:
    """SHA-256 of what training sees of a group: tokens, behaviour log-probs, versions and rewards of every sample.

    Where it ran, how often it was interrupted and when it ended are left out: they may differ between placements.
    """
    digest = sha256(f"{group.group_id} {group.prompt.num_tokens}".encode())
    if group.prompt.token_ids is not None:
        digest.update(group.prompt.token_ids.tobytes())
    for sample in group.samples:
        spans = [(span.version, span.num_tokens) for span in sample.spans]
        digest.update(repr((spans, sample.finish_reason, sample.reward)).encode())
        for values in (sample.token_ids, sample.logprobs):
            if values is not None:
                digest.update(values.tobytes())
    return digest.hexdigest()


def chained(before: str, parts: Iterable[str]) -> str:
    """SHA-256 over an earlier digest and more parts, in order."""
    digest = sha256(before.encode())
    for part in parts:
        digest.update(b"\0" + part.encode())
    return digest.hexdigest()
