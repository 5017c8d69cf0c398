"""A prepared model as a Hugging Face folder, for programs that read nothing else (`vllm serve`)."""

import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from .errors import ModelError

_ITEM_BYTES = {"bfloat16": 2, "float32": 4}
_TYPES = {"bfloat16": "BF16", "float32": "F32"}
_CHUNK_BYTES = 1 << 24


def hf_folder(prepared: Path) -> Path:
    """The folder beside a prepared one, made once: `<digest>-hf/`. Raises `ModelError`."""
    folder = prepared.with_name(prepared.name + "-hf")
    if not folder.is_dir():
        making = Path(tempfile.mkdtemp(prefix=".making-", dir=prepared.parent))
        try:
            _write(prepared, making)
            making.chmod(0o755)
            making.rename(folder)
        except OSError as error:
            if not folder.is_dir():  # else another process made the same content first
                raise ModelError(f"can't write {folder}: {error.strerror}; make room") from error
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return folder


def _write(prepared: Path, to: Path) -> None:
    config = json.loads((prepared / "config.json").read_text(encoding="utf-8"))
    facts = json.loads((prepared / "facts.json").read_text(encoding="utf-8"))
    _write_safetensors(prepared, to / "model.safetensors")
    shutil.copyfile(prepared / "tokenizer.json", to / "tokenizer.json")
    _write_json(to / "config.json", {**config, "torch_dtype": "bfloat16"})
    special = {"bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"]}
    _write_json(to / "generation_config.json", special)
    _write_json(to / "tokenizer_config.json", _tokenizer_config(prepared, facts))


def _tokenizer_config(prepared: Path, facts: dict[str, Any]) -> dict[str, Any]:
    tokenizer = json.loads((prepared / "tokenizer.json").read_text(encoding="utf-8"))
    names = {token["id"]: token["content"] for token in tokenizer.get("added_tokens", [])}
    found = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": facts["max_context"],
        "chat_template": facts["chat_template"],
        "bos_token": names.get(facts["bos_id"]),
        "eos_token": names.get(facts["eos_ids"][0]) if facts["eos_ids"] else None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _write_safetensors(prepared: Path, path: Path) -> None:
    """The format: 8 bytes of header length, a JSON header, then the tensors without gaps."""
    index = json.loads((prepared / "index.json").read_text(encoding="utf-8"))["tensors"]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    sizes: dict[str, int] = {}
    end = 0
    for name, entry in index.items():
        sizes[name] = math.prod(entry["shape"]) * _ITEM_BYTES[entry["dtype"]]
        header[name] = {
            "dtype": _TYPES[entry["dtype"]],
            "shape": entry["shape"],
            "data_offsets": [end, end + sizes[name]],
        }
        end += sizes[name]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out, (prepared / "weights.bin").open("rb") as weights:
        out.write(len(text).to_bytes(8, "little") + text)
        for name, entry in index.items():
            weights.seek(entry["offset"])
            left = sizes[name]
            while left:
                data = weights.read(min(left, _CHUNK_BYTES))
                if not data:
                    raise ModelError(f"{prepared}: damaged; delete the folder to prepare it again")
                out.write(data)
                left -= len(data)
        out.flush()
        os.fsync(out.fileno())


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
