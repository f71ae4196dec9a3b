"""GrpoConfig refuses what is out of range or selects nothing."""

from __future__ import annotations

from typing import Any

import pytest

from bidirl.core.chunks import SubStage
from bidirl.core.errors import ConfigError
from bidirl.runtime.learning import GrpoConfig, sub_stages


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("clip_low", {"clip_low": 1.5}),
        ("clip_low", {"clip_low": float("nan")}),
        ("clip_high", {"clip_high": 0.0}),
        ("kl_coefficient", {"kl_coefficient": -0.1}),
        ("kl_coefficient", {"kl_coefficient": float("inf")}),
        ("aggregation", {"aggregation": "mean"}),
        ("proximal", {"proximal": "old"}),
        ("overlong", {"overlong": "drop"}),
        ("importance_cap", {"importance_cap": 2.0}),
        ("importance_cap", {"importance_cap": 0.0, "proximal": "recomputed"}),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_its_key(key: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        GrpoConfig(**settings)
    assert str(caught.value).startswith(f"{key}: ")
    assert "\n" not in str(caught.value)


def test_sub_stages_follow_what_the_loss_needs() -> None:
    assert sub_stages(GrpoConfig()) == (SubStage.ACTOR_UPDATE,)
    assert sub_stages(GrpoConfig(proximal="recomputed")) == (SubStage.OLD_LOGPROB, SubStage.ACTOR_UPDATE)
    assert sub_stages(GrpoConfig(proximal="recomputed", importance_cap=2.0, kl_coefficient=0.1)) == tuple(SubStage)
