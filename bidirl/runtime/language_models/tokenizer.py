"""A character tokenizer in the usual Hugging Face form."""

from __future__ import annotations

from typing import Any

SPECIAL_TOKENS = ("<pad>", "<eos>", "<unk>")


def character_tokenizer(characters: str, max_length: int) -> Any:
    """One token per character; unknown ones become ``<unk>``; nothing is added to a text.

    Args:
        characters: the vocabulary, in order, after the special tokens.
        max_length: context of the model, tokens.

    Returns:
        A ``PreTrainedTokenizerFast``.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate((*SPECIAL_TOKENS, *dict.fromkeys(characters)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
