"""reasoning-gym data sets as tasks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from bidirl.core.errors import ConfigError
from bidirl.runtime.tasks import PromptFormat, ReasoningGymTask
from tests.runtime.tasks.helpers import Characters, ChatCharacters

SUM = {"min_terms": 2, "max_terms": 4, "min_digits": 1, "max_digits": 1}


def bound(**settings: Any) -> ReasoningGymTask:
    task = ReasoningGymTask(dataset="chain_sum", parameters=SUM, **settings)
    task.bind(Characters(), 200)
    return task


@pytest.mark.parametrize("name", ["chain_sum", "gsm_symbolic", "simple_geometry", "leg_counting", "word_sorting"])
def test_the_true_answer_scores_one_and_nonsense_less(name: str) -> None:
    task = ReasoningGymTask(dataset=name, seed=3, num_examples=20)
    payload = task.example(7).payload
    assert task.reward(payload, f"Let me think. <answer>{payload['answer']}</answer>") == 1.0
    assert task.reward(payload, "<answer>zebra!</answer>") < 0.5
    assert task.reward(payload, "") == 0.0


def test_prompts_are_a_function_of_seed_and_group() -> None:
    first, second = bound(seed=4), pickle.loads(pickle.dumps(bound(seed=4)))
    for group_id in (5, 0, 12_345):
        a, b = first.prompt(group_id), second.prompt(group_id)
        assert np.array_equal(a.token_ids, b.token_ids) and a.payload == b.payload
        assert a.num_tokens == len(a.token_ids) and a.group_id == group_id
    assert first.prompt(0).payload != bound(seed=40).prompt(0).payload


def test_the_stream_repeats_after_its_examples() -> None:
    task = ReasoningGymTask(dataset="chain_sum", num_examples=10)
    assert task.example(3) == task.example(13)


def test_question_pattern_and_template() -> None:
    task = ReasoningGymTask(
        dataset="chain_sum",
        parameters=SUM,
        question_pattern=r": (.*) =",
        answer_format="last_number",
        prompt_format=PromptFormat(template="Q {question} A"),
    )
    task.bind(Characters(), 60)
    prompt = task.prompt(0)
    text = "".join(map(chr, prompt.token_ids))
    assert text.startswith("Q ") and text.endswith(" A") and "State" not in text
    assert task.reward(prompt.payload, f"1+2=3\n={prompt.payload['answer']}") == 1.0


def test_chat_template_wraps_system_and_user() -> None:
    settings = PromptFormat(use_chat_template=True, system_prompt="Be brief.")
    task = ReasoningGymTask(dataset="chain_sum", prompt_format=settings)
    task.bind(ChatCharacters(), 300)
    text = "".join(map(chr, task.prompt(0).token_ids))
    assert text.startswith("[system]Be brief.[user]State the final answer") and text.endswith("[assistant]")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dataset": "chain_sums"}, ["dataset", "chain_sum"]),
        ({"dataset": "chain_sum", "parameters": {"max_term": 3}}, ["parameters", "max_terms"]),
        ({"dataset": "chain_sum", "parameters": {"size": 3}}, ["parameters.size", "num_examples"]),
        ({"dataset": "chain_sum", "parameters": {"min_terms": 9}}, ["parameters", "max_terms"]),
        ({"dataset": "chain_sum", "num_examples": 0}, ["num_examples"]),
        ({"dataset": "chain_sum", "answer_format": "last"}, ["answer_format", "last_line"]),
        ({"dataset": "chain_sum", "question_pattern": "("}, ["question_pattern"]),
        ({"dataset": "chain_sum", "question_pattern": "State"}, ["question_pattern", "group"]),
        ({"dataset": "chain_sum", "question_pattern": "(zebra)"}, ["question_pattern", "match"]),
    ],
)
def test_wrong_settings_are_one_line_with_the_fix(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        ReasoningGymTask(**settings)
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


def test_a_prompt_longer_than_the_context_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match=r"^max_model_len: .* 40 are left"):
        ReasoningGymTask(dataset="chain_sum").bind(Characters(), 40)


def test_a_missing_chat_template_is_refused() -> None:
    task = ReasoningGymTask(dataset="chain_sum", prompt_format=PromptFormat(use_chat_template=True))
    with pytest.raises(ConfigError, match="use_chat_template"):
        task.bind(Characters(), 200)


@pytest.mark.parametrize("settings", [{"template": "no question"}, {"system_prompt": "unused"}])
def test_inert_prompt_formats_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"prompt_format\."):
        PromptFormat(**settings)


def test_bind_comes_first() -> None:
    with pytest.raises(RuntimeError, match="bind"):
        ReasoningGymTask(dataset="chain_sum").prompt(0)
