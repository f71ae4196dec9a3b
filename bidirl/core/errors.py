"""Errors of bidirl.

BidirlError
├── ConfigError        a user's setting is wrong; one line that names the key and the fix (exit status 2)
├── InvariantError     a numbered invariant of docs/invariants.md was about to be broken
├── PolicyError        a user's policy, splitter or model raised, or returned something unusable
├── WorkerError        a worker died, failed to start, or answered with an error
│   ├── GradientsLost  auxiliary trainers died before their gradients were merged: the chunks are computed again
│   └── SwitchError    a hot switch failed and was rolled back: the run goes on without the lease
├── LearnerLost        a primary trainer died: what was learned since the last checkpoint is lost with it
└── StallError         nothing made progress for too long; names who waits for what
"""

from __future__ import annotations


class BidirlError(Exception):
    """Base of every error that bidirl raises on purpose."""


class ConfigError(BidirlError, ValueError):
    """A setting is wrong. The message is one line: the key, what is wrong, and how to fix it."""


class InvariantError(BidirlError):
    """Invariant ``number`` was about to be broken; raised before any state changes."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"invariant {number}: {message}")
        self.number = number


class PolicyError(BidirlError):
    """User-supplied policy code raised or returned something unusable."""


class WorkerError(BidirlError):
    """A worker died, failed to start, or reported an error that it cannot recover from."""


class GradientsLost(WorkerError):
    """Nothing was merged and no auxiliary holds gradients any more; ``workers`` names those that are lost."""

    def __init__(self, workers: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.workers = workers


class SwitchError(WorkerError):
    """A switch-in failed and was rolled back: the auxiliary is passive and the primary of its device works."""


class LearnerLost(BidirlError):
    """A primary trainer is lost, and with it parameters and optimizer: no restart of that worker brings them back."""


class StallError(BidirlError):
    """No progress for the configured time, or a deadlock in virtual time."""
