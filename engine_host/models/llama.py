"""Which configurations are supported, and the tensors that each one has."""

from typing import Any

from .errors import ModelError

SUPPORTED_ARCHITECTURE = "LlamaForCausalLM"
SUPPORTED_ROPE = ("default", "llama3", "factors")

_KEPT = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
)


def normalised_config(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """Reduce a Hugging Face configuration to the keys that the engines read.

    Rotary settings may be `rope_theta` + `rope_scaling` or `rope_parameters`.
    Raises `ModelError` for another architecture, a missing key, or a feature no engine here has.
    """
    refuse_unsupported(raw, where)
    missing = [key for key in _KEPT if key not in raw]
    if missing:
        raise ModelError(f"{where}: the configuration lacks {', '.join(missing)}")
    heads = raw["num_attention_heads"]
    rope = dict(raw.get("rope_parameters") or {})
    scaling = dict(raw.get("rope_scaling") or rope)
    scaling.pop("rope_theta", None)
    kind = scaling.get("rope_type", scaling.pop("type", "default"))
    if kind not in SUPPORTED_ROPE:
        raise ModelError(
            f"{where}: rope scaling '{kind}' is not supported "
            f"(supported: {', '.join(SUPPORTED_ROPE)})"
        )
    return {
        "architectures": [SUPPORTED_ARCHITECTURE],
        "model_type": "llama",
        **{key: raw[key] for key in _KEPT},
        "num_key_value_heads": raw.get("num_key_value_heads") or heads,
        "head_dim": raw.get("head_dim") or raw["hidden_size"] // heads,
        "rope_theta": float(raw.get("rope_theta") or rope.get("rope_theta") or 10000.0),
        "rope_scaling": None if kind == "default" else {**scaling, "rope_type": kind},
        "tie_word_embeddings": bool(raw.get("tie_word_embeddings", False)),
        "bos_token_id": raw.get("bos_token_id"),
        "eos_token_id": raw.get("eos_token_id"),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "bfloat16",
    }


def refuse_unsupported(raw: dict[str, Any], where: str) -> None:
    """Raise `ModelError` for an architecture or a feature that no engine here has."""
    architectures = raw.get("architectures") or [raw.get("model_type", "none named")]
    if SUPPORTED_ARCHITECTURE not in architectures:
        raise ModelError(
            f"{where}: architecture '{architectures[0]}' is not supported "
            f"(supported: {SUPPORTED_ARCHITECTURE}); give another model"
        )
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key):
            raise ModelError(
                f"{where}: '{key}' is set, and linear layers with a bias are not supported"
            )
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(
            f"{where}: activation '{raw['hidden_act']}' is not supported (supported: silu)"
        )
    if "quantization_config" in raw:
        raise ModelError(
            f"{where}: quantised safetensors are not supported; "
            "give the unquantised folder or a GGUF"
        )


def tensor_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Hugging Face name to shape for every tensor, in the order of one forward pass."""
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden)
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (q, hidden),
            prefix + "self_attn.k_proj.weight": (kv, hidden),
            prefix + "self_attn.v_proj.weight": (kv, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, q),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "mlp.gate_proj.weight": (mlp, hidden),
            prefix + "mlp.up_proj.weight": (mlp, hidden),
            prefix + "mlp.down_proj.weight": (hidden, mlp),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes
