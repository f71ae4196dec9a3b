"""Tasks: where prompts come from and how responses are scored. Needs no torch."""

from bidirl.runtime.tasks.base import Example, PromptFormat, Task
from bidirl.runtime.tasks.jsonl_task import JsonlTask
from bidirl.runtime.tasks.reasoning_gym_task import ReasoningGymTask

__all__ = ["Example", "JsonlTask", "PromptFormat", "ReasoningGymTask", "Task"]
