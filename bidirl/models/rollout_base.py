"""What every rollout stage-time model shares: work becomes the usage of its slowest replica, usage becomes seconds."""

from __future__ import annotations

from abc import abstractmethod

from bidirl.core.interfaces import StageModel
from bidirl.core.work import RolloutUsage, RolloutWork


class RolloutModel(StageModel[RolloutWork, RolloutUsage]):
    """Replica-max semantics from :meth:`RolloutWork.usage`; subclasses say what a usage costs."""

    def predict(self, work: RolloutWork, replicas: int) -> float:
        """Seconds of the slowest replica; ``inf`` with no replica and some work, 0 with no work."""
        if work.num_sequences <= 0:
            return 0.0
        if replicas <= 0:
            return float("inf")
        return self.predict_usage(work.usage(replicas))

    @abstractmethod
    def predict_usage(self, usage: RolloutUsage) -> float:
        """Seconds that one replica needs for exactly this usage."""
