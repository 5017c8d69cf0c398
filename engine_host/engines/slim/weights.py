"""Weights of a prepared folder, mapped read-only and shared by every process that maps them."""

import ctypes
import json
import math
import mmap
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
    """Map a prepared folder (docs/ENGINE.md describes it). Copies nothing, reads little."""
    root = Path(folder)
    index = json.loads((root / "index.json").read_text(encoding="utf-8"))
    mapped = _map_read_only(root / "weights.bin")
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


def _map_read_only(path: Path) -> mmap.mmap:
    """Map a whole file so that nobody can write to it.

    The mapping is private and has one page of its own, because fork copies the page table only of
    such a mapping: a forked engine then starts without a page fault for every page of the weights.
    """
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    mapped[-1] = mapped[-1]
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), mmap.PROT_READ):
        raise OSError(ctypes.get_errno(), "can't protect the mapped weights", str(path))
    return mapped


def _view(mapped: mmap.mmap, entry: dict[str, Any]) -> torch.Tensor:
    flat = torch.frombuffer(
        mapped,
        dtype=_DTYPES[entry["dtype"]],
        count=math.prod(entry["shape"]),
        offset=entry["offset"],
    )
    return flat.view(entry["shape"])
