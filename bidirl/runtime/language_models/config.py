"""Settings of the tiny model and of its warm start."""

from __future__ import annotations

from dataclasses import dataclass

from bidirl.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModelConfig:
    """A character-level Qwen3 and how far it is taught chain sums before reinforcement learning.

    The default has 0.6M parameters. ``hidden_size=512, num_layers=6`` gives 17M.

    Attributes:
        hidden_size: width; a multiple of ``head_dim``.
        num_layers: decoder layers.
        intermediate_size: width of the feed-forward part; ``None`` is three times the hidden size.
        head_dim: size of an attention head; there are ``hidden_size / head_dim`` query heads and half as many
            key-value heads.
        max_positions: context, tokens.
        min_terms: fewest terms of a sum.
        max_terms: most terms of a sum: with it grows the longest response (about 8 characters per term).
        max_digits: most digits of a term.
        target_reward: mean reward, sampled at temperature 1, at which the warm start stops.
        max_steps: optimizer steps after which it stops in any case.
        batch_size: sums per step.
        learning_rate: peak of AdamW's.
        evaluate_every: steps between two measurements of the reward.
        num_evaluated: sums per measurement.
        seed: of weights, data and sampling.
    """

    hidden_size: int = 128
    num_layers: int = 3
    intermediate_size: int | None = None
    head_dim: int = 32
    max_positions: int = 512
    min_terms: int = 2
    max_terms: int = 8
    max_digits: int = 1
    target_reward: float = 0.3
    max_steps: int = 2000
    batch_size: int = 32
    learning_rate: float = 3e-3
    evaluate_every: int = 50
    num_evaluated: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse shapes that do not fit and targets that cannot be met.

        Raises:
            ConfigError: naming the key and the fix.
        """
        if self.head_dim < 2 or self.head_dim % 2:
            raise ConfigError(f"head_dim: {self.head_dim} is not a positive even number; use for example 32")
        if self.hidden_size < self.head_dim * 2 or self.hidden_size % (self.head_dim * 2):
            raise ConfigError(
                f"hidden_size: {self.hidden_size} is not a multiple of 2 x head_dim = {2 * self.head_dim}"
            )
        if not 0.0 < self.target_reward < 1.0:
            raise ConfigError(f"target_reward: {self.target_reward} leaves nothing to learn; choose between 0 and 1")
        if not 2 <= self.min_terms <= self.max_terms:
            raise ConfigError(f"max_terms: {self.max_terms} must be at least min_terms = {self.min_terms}, and that 2")
        for key in ("num_layers", "max_positions", "max_digits", "max_steps", "batch_size", "evaluate_every"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key}: {getattr(self, key)} must be at least 1")

    @property
    def feed_forward_size(self) -> int:
        """The resolved ``intermediate_size``."""
        return self.intermediate_size or 3 * self.hidden_size
