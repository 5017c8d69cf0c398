"""From knobs to vLLM's engine arguments."""

from typing import Any

from .space import MAX_BATCHED_TOKENS, MAX_SEQS
from .weights import Weights

_PRECISIONS = ("bfloat16", "float32")
FORMAT = "mapped"


def engine_arguments(values: dict[str, Any], weights: Weights, precision: str) -> dict[str, Any]:
    """Keyword arguments of `EngineArgs`, for knobs that are all given.

    Buffers are made for the largest values of the live knobs. Raises `ValueError` for a precision
    that doesn't exist.
    """
    if precision not in _PRECISIONS:
        raise ValueError(f"precision is {' or '.join(_PRECISIONS)}, not '{precision}'")
    # vLLM takes whole prompts only if a step has room for the longest one.
    room = 0 if values["chunked_prefill"] else weights.max_context
    return {
        "model": weights.folder,
        "load_format": FORMAT,
        "skip_tokenizer_init": True,  # requests and outputs are token ids
        "generation_config": "vllm",
        "dtype": precision,
        "seed": 0,
        "disable_log_stats": True,
        "max_num_seqs": MAX_SEQS,
        "max_num_batched_tokens": max(MAX_BATCHED_TOKENS, room),
        "enable_prefix_caching": values["prefix_caching"],
        "enable_chunked_prefill": values["chunked_prefill"],
        "block_size": values["block_size"],
        "kv_cache_memory_bytes": values["kv_cache_mib"] << 20,
        "kv_cache_dtype": values["kv_cache_dtype"],
        "enforce_eager": values["mode"] == "eager",
        "quantization": None if values["quantization"] == "none" else values["quantization"],
        "speculative_config": _speculation(values),
    }


def _speculation(values: dict[str, Any]) -> dict[str, Any] | None:
    if values["ngram_tokens"] == 0:
        return None
    return {
        "method": "ngram",
        "num_speculative_tokens": values["ngram_tokens"],
        "prompt_lookup_max": values["ngram_lookup_max"],
        "prompt_lookup_min": 2,
    }
