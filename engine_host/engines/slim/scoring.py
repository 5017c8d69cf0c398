"""Teacher forcing: what the model thinks of given outputs."""

from typing import Any

import torch

from .batch import Batch, Span
from .kv_cache import KVCache
from .model import Model

_CHUNK_ROWS = 512
_LOGIT_ROWS = 128


def score_sequence(model: Model, prompt: list[int], output: list[int]) -> dict[str, Any]:
    """Log-probability, gap to the largest logit, and argmax, at each token of `output`.

    Uses a cache of its own, so an engine's state doesn't matter. Raises `ValueError` for an empty
    prompt or more tokens than the model has positions.
    """
    tokens = [*prompt, *output[:-1]]
    if not prompt:
        raise ValueError("a sequence to score has an empty prompt")
    if len(tokens) > model.cos.shape[0]:
        raise ValueError(f"a sequence to score has {len(tokens)} tokens, over {model.cos.shape[0]}")
    hidden = _hidden_states(model, tokens)[len(prompt) - 1 :]
    result: dict[str, Any] = {"logprobs": [], "gaps": [], "top": []}
    for start in range(0, len(output), _LOGIT_ROWS):
        chosen = torch.tensor(output[start : start + _LOGIT_ROWS], device=model.device)
        logits = model.logits(hidden[start : start + chosen.shape[0]])
        picked = logits.gather(1, chosen[:, None])[:, 0]
        largest, top = logits.max(dim=-1)
        result["logprobs"] += (picked - logits.logsumexp(dim=-1)).tolist()
        result["gaps"] += (largest - picked).tolist()
        result["top"] += top.tolist()
    return result


def _hidden_states(model: Model, tokens: list[int]) -> torch.Tensor:
    config, count = model.config, len(tokens)
    cache = KVCache(
        config.layers, count, config.kv_heads, config.head_dim, model.dtype, model.device
    )
    parts = []
    for start in range(0, count, _CHUNK_ROWS):
        end = min(start + _CHUNK_ROWS, count)
        at = torch.arange(start, end, device=model.device)
        chunk = torch.tensor(tokens[start:end], device=model.device)
        span = Span(0, end - start, slice(0, end))
        parts.append(model.prefill(Batch(chunk, at, at, [span]), cache))
    return torch.cat(parts)
