"""Wrong settings are refused by one line that names the key and the fix."""

import pytest

from bidirl.core.errors import ConfigError
from bidirl.core.topology import build_topology
from bidirl.runtime.ray.config import RayConfig
from bidirl.runtime.ray.hot_switch import check_hardware


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"rollout_dtype": "int8"}, "rollout_dtype"),
        ({"zero_stage": 4}, "zero_stage"),
        ({"max_response_tokens": 256}, "max_model_len"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"kv_cache_gib": -1.0}, "kv_cache_gib"),
        ({"gradient_merge": "exact", "zero_stage": 3}, "zero_stage 0, 1 or 2"),
    ],
)
def test_bad_values(model, setting, words):
    with pytest.raises(ConfigError, match=words) as caught:
        RayConfig(model=model, **setting)
    assert "\n" not in str(caught.value)


def test_a_model_that_does_not_exist():
    with pytest.raises(ConfigError, match="model: /nowhere"):
        RayConfig(model="/nowhere")


def test_more_cores_than_there_are(model):
    with pytest.raises(ConfigError, match="cores_per_device"):
        check_hardware(RayConfig(model=model, cores_per_device=100_000), build_topology(1, 1))


def test_cuda_without_a_gpu(model):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match="accelerator: cuda needs 2 GPUs, 0 found"):
        check_hardware(RayConfig(model=model, accelerator="cuda"), build_topology(1, 1))


def test_heads_that_vllm_cannot_run_on_cpu(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 64, "num_attention_heads": 4}')
    with pytest.raises(ConfigError, match="heads of size 16"):
        check_hardware(RayConfig(model=str(tmp_path)), build_topology(1, 1))
