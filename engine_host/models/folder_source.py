"""A model in a Hugging Face folder: config.json, tokenizer.json and safetensors."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ModelError
from .llama import refuse_unsupported
from .source import BFloat16Bits, digest_of_files, round_to_bfloat16

_NUMPY_TYPES = {"F32": np.float32, "F16": np.float16, "F64": np.float64}
_ITEM_BYTES = {"BF16": 2, "F32": 4, "F16": 2, "F64": 8}


class FolderSource:
    """A `Source` over a folder of safetensors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = self._json("config.json")
        refuse_unsupported(self._config, str(folder))
        if not (folder / "tokenizer.json").is_file():
            raise ModelError(
                f"{folder}: has no tokenizer.json; export the tokenizer in that format"
            )
        self._shards = self._find_shards()
        self._tensors: dict[str, _Entry] = {}
        for shard in self._shards:
            self._tensors |= _read_header(shard)

    def digest(self) -> str:
        """SHA-256 over the configuration, the tokenizer and every shard."""
        extra = [self._folder / "chat_template.jinja", self._folder / "tokenizer_config.json"]
        files = [self._folder / "config.json", self._folder / "tokenizer.json", *self._shards]
        return digest_of_files(files + [path for path in extra if path.is_file()])

    def config(self) -> dict[str, Any]:
        """The folder's config.json; without an output layer of its own the model is tied."""
        tied = self._config.get("tie_word_embeddings", False) or not self.has("lm_head.weight")
        return {**self._config, "tie_word_embeddings": tied}

    def tokenizer_json(self) -> str:
        """The folder's tokenizer.json."""
        return (self._folder / "tokenizer.json").read_text(encoding="utf-8")

    def chat_template(self) -> str | None:
        """From chat_template.jinja, or else from tokenizer_config.json."""
        jinja = self._folder / "chat_template.jinja"
        if jinja.is_file():
            return jinja.read_text(encoding="utf-8")
        if not (self._folder / "tokenizer_config.json").is_file():
            return None
        template = self._json("tokenizer_config.json").get("chat_template")
        return template if isinstance(template, str) else None

    def has(self, name: str) -> bool:
        """Whether any shard holds the tensor."""
        return name in self._tensors

    def tensor(self, name: str) -> BFloat16Bits:
        """One tensor, rounded to bfloat16 if it is stored wider."""
        return self._tensors[name].read()

    def _json(self, name: str) -> dict[str, Any]:
        path = self._folder / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ModelError(f"{self._folder}: has no {name}") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ModelError(f"{path}: not valid JSON ({error})") from error
        if not isinstance(content, dict):
            raise ModelError(f"{path}: not a JSON object")
        return content

    def _find_shards(self) -> list[Path]:
        if (self._folder / "model.safetensors.index.json").is_file():
            names = sorted(set(self._json("model.safetensors.index.json")["weight_map"].values()))
        else:
            names = ["model.safetensors"]
        missing = [name for name in names if not (self._folder / name).is_file()]
        if missing:
            raise ModelError(
                f"{self._folder}: {len(missing)} of {len(names)} weight files missing: "
                f"{', '.join(missing[:3])}"
            )
        return [self._folder / name for name in names]


class _Entry:
    """Where one tensor lies in a shard."""

    def __init__(self, shard: Path, dtype: str, shape: list[int], start_byte: int) -> None:
        self.shard, self.dtype, self.shape, self.start_byte = shard, dtype, shape, start_byte
        self.size_bytes = math.prod(shape) * _ITEM_BYTES[dtype]

    def read(self) -> BFloat16Bits:
        count = math.prod(self.shape)
        numpy_type = np.uint16 if self.dtype == "BF16" else _NUMPY_TYPES[self.dtype]
        flat = np.fromfile(self.shard, dtype=numpy_type, count=count, offset=self.start_byte)
        values = flat.reshape(self.shape)
        return values if self.dtype == "BF16" else round_to_bfloat16(values.astype(np.float32))


def _read_header(shard: Path) -> dict[str, _Entry]:
    actual_bytes = shard.stat().st_size
    with shard.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if actual_bytes < 8 + header_bytes:
            raise ModelError(
                f"{shard}: truncated: its header needs {8 + header_bytes} bytes "
                f"and it has {actual_bytes}; fetch it again"
            )
        try:
            header = json.loads(file.read(header_bytes))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ModelError(f"{shard}: not a safetensors file ({error})") from error
    header.pop("__metadata__", None)
    entries = {}
    for name, info in header.items():
        if info["dtype"] not in _ITEM_BYTES:
            raise ModelError(
                f"{shard}: tensor '{name}' is {info['dtype']} (supported: {', '.join(_ITEM_BYTES)})"
            )
        start_byte = 8 + header_bytes + info["data_offsets"][0]
        entries[name] = _Entry(shard, info["dtype"], info["shape"], start_byte)
    expected = max((e.start_byte + e.size_bytes for e in entries.values()), default=0)
    if expected > actual_bytes:
        raise ModelError(
            f"{shard}: truncated: its tensors need {expected} bytes and it has {actual_bytes}; "
            "fetch it again"
        )
    return entries
