"""GRPO: advantages, batch preparation and loss. Modules that need torch are imported by name, not from here."""

from bidirl.runtime.learning.batch import Denominators, PreparedBatch, TrainSequence, prepare_batch
from bidirl.runtime.learning.config import GrpoConfig, sub_stages
from bidirl.runtime.learning.statistics import step_metrics

__all__ = [
    "Denominators",
    "GrpoConfig",
    "PreparedBatch",
    "TrainSequence",
    "prepare_batch",
    "step_metrics",
    "sub_stages",
]
