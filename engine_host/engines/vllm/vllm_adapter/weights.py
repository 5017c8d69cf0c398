"""Weights of a prepared folder, mapped read-only, and the loader that hands them to vLLM."""

import json
import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import environment

environment.prepare()

import torch  # noqa: E402 (it reads the environment when it is first imported)

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Weights:
    """Tensors by Hugging Face name, as views of the mapped file; `folder` has `config.json`."""

    folder: str
    vocab: int
    max_context: int
    eos_ids: tuple[int, ...]
    tensors: dict[str, torch.Tensor]


_mapped: dict[str, Weights] = {}


def load_weights(folder: str) -> Weights:
    """Map a prepared folder (docs/ENGINE.md describes it). Copies nothing, reads little."""
    if folder not in _mapped:
        root = Path(folder)
        index = json.loads((root / "index.json").read_text(encoding="utf-8"))
        config = json.loads((root / "config.json").read_text(encoding="utf-8"))
        with (root / "weights.bin").open("rb") as file:
            # A private mapping, because torch refuses memory that it can't write to.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        eos = config["eos_token_id"]
        _mapped[folder] = Weights(
            folder,
            config["vocab_size"],
            config["max_position_embeddings"],
            () if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
            {name: _view(mapped, entry) for name, entry in index["tensors"].items()},
        )
    return _mapped[folder]


def tensors_of(folder: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors as a checkpoint gives them."""
    yield from load_weights(folder).tensors.items()


def _view(mapped: mmap.mmap, entry: dict[str, Any]) -> torch.Tensor:
    flat = torch.frombuffer(
        mapped,
        dtype=_DTYPES[entry["dtype"]],
        count=math.prod(entry["shape"]),
        offset=entry["offset"],
    )
    return flat.view(entry["shape"])
