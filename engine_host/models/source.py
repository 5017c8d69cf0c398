"""What a model's origin must offer, whatever its format."""

import hashlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

BFloat16Bits = npt.NDArray[np.uint16]
"""bfloat16 values as their bits: numpy has no such type."""

_CHUNK_BYTES = 1 << 22


class Source(Protocol):
    """A model where it was found. Opening one is cheap; `digest` and `tensor` read the disk.

    Every method raises `ModelError` for what it finds broken.
    """

    def digest(self) -> str:
        """SHA-256 (hex) over everything that the prepared model is made from."""

    def config(self) -> dict[str, Any]:
        """Hugging Face style Llama configuration, not yet checked."""

    def tokenizer_json(self) -> str:
        """The tokenizer in the `tokenizers` library's JSON format."""

    def chat_template(self) -> str | None:
        """Jinja template of a conversation, or None if the model has none."""

    def has(self, name: str) -> bool:
        """Whether a tensor of this Hugging Face name exists."""

    def tensor(self, name: str) -> BFloat16Bits:
        """One tensor by its Hugging Face name, rounded to bfloat16."""


def round_to_bfloat16(values: npt.NDArray[np.float32]) -> BFloat16Bits:
    """Round to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    quiet_nan = (bits >> 16) | np.uint32(0x0040)
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)


def digest_of_files(paths: list[Path]) -> str:
    """SHA-256 over the files' names and contents, in the order given."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.name.encode() + b"\0" + bytes.fromhex(digest_of_file(path)))
    return total.hexdigest()


def digest_of_file(path: Path) -> str:
    """SHA-256 (hex) of one file."""
    content = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            content.update(chunk)
    return content.hexdigest()
