"""Numbers about a prepared model that planning and judging need, without opening its weights."""

import math
from typing import Any

_ITEM_BYTES = 2


def facts_of(
    name: str,
    config: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    chat_template: str | None,
) -> dict[str, Any]:
    """Facts of a model whose tensors, all bfloat16, have these shapes.

    `bytes_per_pass`: weight bytes that one decode pass must read: every tensor once, without an
    embedding that is not also the output layer (one row a token). `kv_bytes_per_token`: what one
    position adds to a bfloat16 cache. `eos_ids` may be empty, `bos_id` and `chat_template` None.
    """
    params = sum(math.prod(shape) for shape in shapes.values())
    embedding = math.prod(shapes["model.embed_tokens.weight"])
    untied = "lm_head.weight" in shapes
    eos = config["eos_token_id"]
    return {
        "name": name,
        "architecture": config["architectures"][0],
        "params": params,
        "weight_bytes": params * _ITEM_BYTES,
        "bytes_per_pass": (params - (embedding if untied else 0)) * _ITEM_BYTES,
        "kv_bytes_per_token": 2
        * _ITEM_BYTES
        * config["num_hidden_layers"]
        * config["num_key_value_heads"]
        * config["head_dim"],
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "mlp": config["intermediate_size"],
        "heads": config["num_attention_heads"],
        "kv_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
        "vocab": config["vocab_size"],
        "max_context": config["max_position_embeddings"],
        "tied": not untied,
        "bos_id": config["bos_token_id"],
        "eos_ids": [] if eos is None else eos if isinstance(eos, list) else [eos],
        "chat_template": chat_template,
    }
