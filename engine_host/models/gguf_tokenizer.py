"""The tokenizer of a GGUF file, as a `tokenizers` JSON document."""

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from .errors import ModelError

_CONTROL, _USER_DEFINED = 3, 4

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _digits_then_bytes() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def _llama3() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_LLAMA3_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _plain() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


# The value of `tokenizer.ggml.pre` to the splitting of text that the model was trained with.
_PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "smollm": _digits_then_bytes,
    "llama-bpe": _llama3,
    "llama3": _llama3,
    "gpt-2": _plain,
}


def tokenizer_json_from_gguf(field: Callable[[str], Any], where: str) -> str:
    """Build the byte-level BPE tokenizer that the metadata describe.

    `field` gives a metadata value by key, or None. Control tokens become special tokens.
    Raises `ModelError` for another kind of tokenizer or an unknown way of splitting text.
    """
    kind, pre = field("tokenizer.ggml.model"), field("tokenizer.ggml.pre") or "gpt-2"
    if kind != "gpt2":
        raise ModelError(
            f"{where}: tokenizer '{kind}' is not supported (supported: gpt2, byte-level BPE)"
        )
    if pre not in _PRE_TOKENIZERS:
        raise ModelError(
            f"{where}: text splitting '{pre}' is not supported "
            f"(supported: {', '.join(_PRE_TOKENIZERS)})"
        )
    tokens, types = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(
        models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges)
    )
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    special = [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, kind in zip(tokens, types or [], strict=False)
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    tokenizer.add_special_tokens([token for token in special if token.special])
    tokenizer.add_tokens([token for token in special if not token.special])
    return str(tokenizer.to_str())
