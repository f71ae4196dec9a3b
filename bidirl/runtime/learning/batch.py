"""From consumed groups to sequences with advantages and to the batch's global denominators. numpy only.

What cannot be trained is masked here, once, and counted:

* a reward that is missing or not finite takes its sample out of the group's statistics and out of the loss;
* fewer than two scored samples, or equal rewards, give advantage exactly 0 to the whole group;
* an empty response keeps its reward in the group's statistics, and has no token in the loss;
* a token whose behaviour log-prob is missing or not finite is out of the loss, the rest of its response stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bidirl.core.chunks import SequenceRef
from bidirl.core.groups import Group, Sample
from bidirl.runtime.learning.advantages import group_advantages
from bidirl.runtime.learning.config import GrpoConfig
from bidirl.runtime.learning.statistics import batch_metrics


@dataclass(frozen=True, slots=True)
class TrainSequence:
    """One sample as the loss sees it.

    Attributes:
        token_ids: prompt then response, shape ``(prompt_len + response_len,)``, int32.
        prompt_len: prompt tokens.
        behaviour_logprobs: of each response token, shape ``(response_len,)``, float32; 0 where ``mask`` is false.
        mask: response tokens that are in the loss, shape ``(response_len,)``, bool.
        advantage: of every token of this response, unit-free.
        group_index: position of the group in the batch.
        sample_index: position of the sample in its group.
    """

    token_ids: NDArray[np.int32]
    prompt_len: int
    behaviour_logprobs: NDArray[np.float32]
    mask: NDArray[np.bool_]
    advantage: float
    group_index: int
    sample_index: int

    @property
    def response_len(self) -> int:
        """Response tokens, masked ones included."""
        return len(self.token_ids) - self.prompt_len

    @property
    def num_trainable_tokens(self) -> int:
        """Response tokens in the loss."""
        return int(self.mask.sum())


@dataclass(frozen=True, slots=True)
class Denominators:
    """What sums are divided by, over the whole batch: never over a chunk, a rank or a group.

    Attributes:
        num_tokens: response tokens in the loss (those of zero-advantage sequences too).
        num_sequences: responses with at least one such token.
    """

    num_tokens: int
    num_sequences: int


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch that is ready to be cut into chunks.

    Attributes:
        sequences: ``sequences[group_index][sample_index]``.
        denominators: global, fixed before any chunk runs.
        num_trainable_tokens: response tokens that can have a gradient; 0 means that no step may be taken.
        metrics: scalars for the step's row.
    """

    sequences: tuple[tuple[TrainSequence, ...], ...]
    denominators: Denominators
    num_trainable_tokens: int
    metrics: Mapping[str, float]

    def select(self, refs: Sequence[SequenceRef]) -> tuple[TrainSequence, ...]:
        """The sequences of a chunk, in its order."""
        return tuple(self.sequences[ref.group_index][ref.sample_index] for ref in refs)


def prepare_batch(groups: Sequence[Group], config: GrpoConfig) -> PreparedBatch:
    """Advantages, masks, denominators and metrics of the groups that one optimizer step consumes.

    Args:
        groups: finished and scored, in canonical order, with token ids.
        config: see :class:`GrpoConfig`.

    Raises:
        InvariantError: 2, if tokens, log-probs and versions of a sample differ in length.
        ValueError: if a prompt has no token ids.
    """
    advantages = [group_advantages([s.reward for s in group.samples], config.normalise_std) for group in groups]
    sequences = tuple(
        tuple(_sequence(group, sample, float(values[i]), (g, i), config) for i, sample in enumerate(group.samples))
        for g, (group, values) in enumerate(zip(groups, advantages, strict=True))
    )
    flat = [sequence for row in sequences for sequence in row]
    tokens = [sequence.num_trainable_tokens for sequence in flat]
    has_gradient = [config.kl_coefficient > 0 or sequence.advantage != 0 for sequence in flat]
    trainable = sum(n for n, has in zip(tokens, has_gradient, strict=True) if has)
    return PreparedBatch(
        sequences=sequences,
        denominators=Denominators(sum(tokens), sum(n > 0 for n in tokens)),
        num_trainable_tokens=trainable,
        metrics=batch_metrics(groups, advantages, num_masked_tokens=sum(s.response_len for s in flat) - sum(tokens)),
    )


def _sequence(
    group: Group, sample: Sample, advantage: float, place: tuple[int, int], config: GrpoConfig
) -> TrainSequence:
    sample.check()
    prompt_ids = group.prompt.token_ids
    if prompt_ids is None or len(prompt_ids) == 0:
        raise ValueError(f"the prompt of group {group.group_id} has no token ids")
    response_ids = np.zeros(0, np.int32) if sample.token_ids is None else sample.token_ids
    if sample.logprobs is None:
        logprobs = np.full(len(response_ids), np.nan, np.float32)
    else:
        logprobs = np.asarray(sample.logprobs, dtype=np.float32)
    keep = np.isfinite(logprobs) & np.isfinite(advantage)
    if config.overlong == "mask" and sample.finish_reason == "length":
        keep = np.zeros_like(keep)
    return TrainSequence(
        token_ids=np.concatenate([prompt_ids, response_ids]).astype(np.int32),
        prompt_len=len(prompt_ids),
        behaviour_logprobs=np.where(keep, logprobs, np.float32(0)).astype(np.float32),
        mask=keep,
        advantage=advantage if np.isfinite(advantage) else 0.0,
        group_index=place[0],
        sample_index=place[1],
    )
