"""What a learned policy sees of an opportunity: a fixed-length vector, pure and finite."""

from __future__ import annotations

from math import log1p

import numpy as np
from numpy.typing import NDArray

from bidirl.core.opportunity import Opportunity
from bidirl.core.topology import Direction

FEATURES = (
    "trainer_on_rollpool",
    "model_ready",
    "auxiliary_share",
    "log_alone_seconds",
    "log_saved_seconds",
    "log_cost_seconds",
    "net_share",
    "paid_share",
)
LOW, HIGH = -1.0, 20.0


def features(opportunity: Opportunity) -> NDArray[np.float32]:
    """One value per name in ``FEATURES``, between ``LOW`` and ``HIGH``; seconds as log(1 + seconds)."""
    primaries, auxiliaries = opportunity.primary_replicas, opportunity.auxiliary_replicas
    rollout = opportunity.direction is Direction.ROLLOUTER_ON_TRAINPOOL
    ready = opportunity.rollout_model.ready if rollout else opportunity.trainer_model.ready
    alone = shared = 0.0
    if ready and primaries > 0:
        if rollout:
            model, work = opportunity.rollout_model, opportunity.rollout_work
            alone, shared = model.predict(work, primaries), model.predict(work, primaries + auxiliaries)
        else:
            trainer, chunks = opportunity.trainer_model, opportunity.trainer_work
            alone, shared = trainer.predict(chunks, primaries), trainer.predict(chunks, primaries + auxiliaries)
    cost = opportunity.switch_cost
    price = cost.in_seconds + cost.out_seconds + (0.0 if rollout else cost.grad_seconds)
    closed = opportunity.history.paid + opportunity.history.lost
    values = (
        0.0 if rollout else 1.0,
        1.0 if ready else 0.0,
        auxiliaries / max(1, primaries + auxiliaries),
        log1p(alone),
        log1p(max(0.0, alone - shared)),
        log1p(price),
        (alone - shared - price) / alone if alone > 0.0 else 0.0,
        opportunity.history.paid / closed if closed else 0.5,
    )
    return np.clip(np.asarray(values, dtype=np.float32), LOW, HIGH)
