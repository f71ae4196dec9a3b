"""The simulator as a Gymnasium environment: ``gymnasium.make("bidirl.gym:bidirl/Lending-v0")``."""

import gymnasium

from bidirl.gym.environment import LendingEnv
from bidirl.gym.linear_policy import LinearPolicy

__all__ = ["ENV_ID", "LendingEnv", "LinearPolicy"]

ENV_ID = "bidirl/Lending-v0"
if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point="bidirl.gym.environment:LendingEnv")
