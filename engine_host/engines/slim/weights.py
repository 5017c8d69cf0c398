"""Weights of a prepared folder, mapped read-only and shared by every process that maps them."""

import json
import math
import mmap
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Config:
    """The numbers of a Llama-architecture model.

    `rope_scaling` is None, or a dict whose `rope_type` is "llama3" (with its four settings) or
    "factors" (with one divisor for each frequency).
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    max_context: int
    norm_eps: float
    rope_theta: float
    rope_scaling: dict[str, Any] | None
    eos_ids: tuple[int, ...]


@dataclass(frozen=True)
class Weights:
    """Tensors by Hugging Face name, as views of the mapped file. Nothing may write to them."""

    config: Config
    tensors: dict[str, torch.Tensor]


def load_weights(folder: str) -> Weights:
    """Map a prepared folder (docs/ENGINE.md describes it). Copies nothing, reads no page."""
    root = Path(folder)
    index = json.loads((root / "index.json").read_text(encoding="utf-8"))
    with (root / "weights.bin").open("rb") as file:
        # The file is open for reading only, so the kernel refuses any writable mapping of it.
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    with warnings.catch_warnings():
        # torch warns that it can't mark a tensor as read-only; the mapping itself is.
        warnings.simplefilter("ignore", UserWarning)
        tensors = {name: _view(mapped, entry) for name, entry in index["tensors"].items()}
    return Weights(read_config(root / "config.json"), tensors)


def read_config(path: Path) -> Config:
    """Read a Hugging Face style Llama configuration."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    eos = raw["eos_token_id"]
    return Config(
        hidden=raw["hidden_size"],
        layers=raw["num_hidden_layers"],
        heads=raw["num_attention_heads"],
        kv_heads=raw["num_key_value_heads"],
        head_dim=raw["head_dim"],
        mlp=raw["intermediate_size"],
        vocab=raw["vocab_size"],
        max_context=raw["max_position_embeddings"],
        norm_eps=raw["rms_norm_eps"],
        rope_theta=raw["rope_theta"],
        rope_scaling=raw["rope_scaling"],
        eos_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
    )


def _view(mapped: mmap.mmap, entry: dict[str, Any]) -> torch.Tensor:
    flat = torch.frombuffer(
        mapped,
        dtype=_DTYPES[entry["dtype"]],
        count=math.prod(entry["shape"]),
        offset=entry["offset"],
    )
    return flat.view(entry["shape"])
