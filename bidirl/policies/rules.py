"""What the admission policies share: the refusals that need no model, and the paper's two predictions."""

from __future__ import annotations

from collections.abc import Mapping

from bidirl.core.chunks import SubStage
from bidirl.core.interfaces import StageModel
from bidirl.core.opportunity import Decision, Opportunity
from bidirl.core.topology import Direction
from bidirl.core.work import TrainerWork


def refuse(reason: str) -> Decision:
    """A refusal without predicted numbers."""
    return Decision(False, reason)


def rollout_direction(opportunity: Opportunity) -> bool:
    """Whether rollouters would borrow the TrainPool."""
    return opportunity.direction is Direction.ROLLOUTER_ON_TRAINPOOL


def nothing_to_lend(opportunity: Opportunity) -> Decision | None:
    """The refusal of an opportunity with nothing idle or nothing missing."""
    if opportunity.auxiliary_replicas <= 0:
        return refuse("no_idle_replica")
    missing = opportunity.missing_groups if rollout_direction(opportunity) else len(opportunity.trainer_work.chunks)
    return None if missing > 0 else refuse("nothing_missing")


def without_primaries(opportunity: Opportunity) -> Decision | None:
    """Admission where no primary could ever do the work (a colocated envelope): refusing would wait for ever."""
    return Decision(True, "no_primary_replica") if opportunity.primary_replicas <= 0 else None


def model_ready(opportunity: Opportunity) -> bool:
    """Whether the stage-time model of the borrowed role can predict."""
    return opportunity.rollout_model.ready if rollout_direction(opportunity) else opportunity.trainer_model.ready


def compare(benefit_seconds: float, cost_seconds: float, numbers: Mapping[str, float]) -> Decision:
    """Admit if and only if the benefit exceeds the cost; a tie refuses."""
    admit = benefit_seconds > cost_seconds
    reason = "benefit_exceeds_cost" if admit else "benefit_does_not_exceed_cost"
    return Decision(admit, reason, benefit_seconds, cost_seconds, numbers)


def drain_prefix(
    work: TrainerWork, seconds: float, model: StageModel[TrainerWork, TrainerWork], replicas: int
) -> TrainerWork:
    """DrainPrefix (Algorithm 2, step 1): ``work`` without the longest prefix that ``replicas`` finish in ``seconds``.

    Order and content of the rest are kept; the communication stays with the rest. A chunk that is still running at
    ``seconds`` counts as undone. Assumes that M_t does not fall when chunks are added.
    """
    chunks = work.chunks
    if not chunks or seconds <= 0.0 or replicas <= 0:
        return work

    def drained(count: int) -> bool:
        return model.predict(TrainerWork(chunks[:count]), replicas) <= seconds

    low, high, step = 0, len(chunks) + 1, replicas
    while low + step < high:  # gallop: the prefix is usually short
        if drained(low + step):
            low, step = low + step, 2 * step
        else:
            high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if drained(middle):
            low = middle
        else:
            high = middle
    return TrainerWork(chunks[low:], work.comm_bytes)


def updates_actor(work: TrainerWork) -> bool:
    """Whether auxiliaries that take part in ``work`` accumulate gradients, so that C_grad is due."""
    return any(stage is SubStage.ACTOR_UPDATE for stage, _ in reversed(work.chunks))
