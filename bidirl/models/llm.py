"""Language models: dimensions with their sources; parameter counts and KV bytes follow by arithmetic.

Dimensions: THUDM/slime scripts/models/qwen3-*.sh and qwen2.5-*.sh @624b824 (CONSTANTS §2.1). Qwen3-VL: the models'
config.json; their totals with the vision tower are stated, since the tower's dimensions alone do not give them.
"""

from __future__ import annotations

from dataclasses import dataclass

from bidirl.core.errors import ConfigError

_SLIME = "THUDM/slime scripts/models @624b824"
_VL = "Qwen3-VL config.json; the text part has the dimensions of the Qwen3 model of that size"
BYTES = 2
"""bf16."""


@dataclass(frozen=True, slots=True)
class Llm:
    """A decoder with grouped-query attention and a gated MLP.

    Attributes:
        name: key in :data:`LLMS`.
        vision_params: parameters outside the text model: trained and moved, but not read per decoded token.
        qkv_bias: whether the attention projections have biases (Qwen2.5).
        qk_norm: whether queries and keys are normalised per head (Qwen3).
        source: of the dimensions.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    vision_params: float = 0.0
    qkv_bias: bool = False
    qk_norm: bool = True
    source: str = _SLIME

    @property
    def text_params(self) -> float:
        """Parameters of the text model, embeddings included (once if tied)."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (2 * q + 2 * kv) + (q + 2 * kv if self.qkv_bias else 0)
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        layer = attention + 3 * self.hidden * self.ffn + norms
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return float(self.layers * layer + embeddings + self.hidden)

    @property
    def params(self) -> float:
        """All parameters."""
        return self.text_params + self.vision_params

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token over all layers, bf16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES


def _qwen25(
    name: str, layers: int, hidden: int, ffn: int, heads: int, kv: int, dim: int, vocab: int, tied: bool
) -> Llm:
    return Llm(name, layers, hidden, ffn, heads, kv, dim, vocab, tied, qkv_bias=True, qk_norm=False)


LLMS: dict[str, Llm] = {
    llm.name: llm
    for llm in (
        Llm("qwen3-0.6b", 28, 1024, 3072, 16, 8, 128, 151936, True),
        Llm("qwen3-1.7b", 28, 2048, 6144, 16, 8, 128, 151936, True),
        Llm("qwen3-4b", 36, 2560, 9728, 32, 8, 128, 151936, True),
        Llm("qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936, False),
        Llm("qwen3-14b", 40, 5120, 17408, 40, 8, 128, 151936, False),
        Llm("qwen3-32b", 64, 5120, 25600, 64, 8, 128, 151936, False),
        # Totals 2.128e9, 4.438e9 and 8.767e9 (CONSTANTS §2.1) less the text models' 1.721e9, 4.022e9 and 8.191e9.
        Llm("qwen3-vl-2b", 28, 2048, 6144, 16, 8, 128, 151936, True, vision_params=0.407e9, source=_VL),
        Llm("qwen3-vl-4b", 36, 2560, 9728, 32, 8, 128, 151936, True, vision_params=0.416e9, source=_VL),
        Llm("qwen3-vl-8b", 36, 4096, 12288, 32, 8, 128, 151936, False, vision_params=0.576e9, source=_VL),
        _qwen25("qwen2.5-0.5b", 24, 896, 4864, 14, 2, 64, 151936, True),
        _qwen25("qwen2.5-1.5b", 28, 1536, 8960, 12, 2, 128, 151936, True),
        _qwen25("qwen2.5-3b", 36, 2048, 11008, 16, 2, 128, 151936, True),
        _qwen25("qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, 152064, False),
    )
}


def llm(name: str) -> Llm:
    """A language model by name.

    Raises:
        ConfigError: naming those available.
    """
    try:
        return LLMS[name]
    except KeyError:
        raise ConfigError(f"model is {name!r}: use one of {', '.join(LLMS)}") from None
