"""A model in a GGUF file: dequantised, with q and k put back into Hugging Face's rotary layout."""

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import (
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
    GGUFReader,
    ReaderField,
    ReaderTensor,
    dequantize,
)

from .errors import ModelError
from .gguf_tokenizer import tokenizer_json_from_gguf
from .llama import SUPPORTED_ARCHITECTURE
from .source import BFloat16Bits, digest_of_file, round_to_bfloat16

_TOP_LEVEL = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}


class _CheckedReader(GGUFReader):
    """A reader that knows, before it touches the tensors, that they are of use and all there."""

    def _build_tensors(self, start_offs: int, fields: list[ReaderField]) -> None:
        named = self.fields.get("general.architecture")
        _refuse_architecture(None if named is None else named.contents())
        expected_bytes = int(start_offs)
        for field in fields:
            dims, raw_type, offset = field.parts[3], field.parts[4], field.parts[5]
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(raw_type[0])]
            tensor_bytes = math.prod(int(n) for n in dims) * size // block
            expected_bytes = max(expected_bytes, int(start_offs + offset[0]) + tensor_bytes)
        if expected_bytes > len(self.data):
            raise ModelError(
                f"truncated: its tensors need {expected_bytes} bytes and it has {len(self.data)}; "
                "fetch it again"
            )
        super()._build_tensors(start_offs, fields)


class GgufSource:
    """A `Source` over one GGUF file. Its header, slow to parse, is read when first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def digest(self) -> str:
        """SHA-256 of the file."""
        return digest_of_file(self._path)

    def config(self) -> dict[str, Any]:
        """Configuration in Hugging Face's words, from the file's metadata."""
        return self._config

    def tokenizer_json(self) -> str:
        """Tokenizer built from the file's metadata."""
        return tokenizer_json_from_gguf(self._field, str(self._path))

    def chat_template(self) -> str | None:
        """Template of the file's metadata, if it has one."""
        template = self._field("tokenizer.chat_template")
        return None if template is None else str(template)

    def has(self, name: str) -> bool:
        """Whether the file has the tensor of this Hugging Face name."""
        return _gguf_name(name) in self._tensors

    def tensor(self, name: str) -> BFloat16Bits:
        """Dequantise one tensor and round it to bfloat16."""
        found = self._tensors[_gguf_name(name)]
        try:
            values = dequantize(found.data, found.tensor_type)
        except NotImplementedError as error:
            raise ModelError(
                f"{self._path}: tensor '{found.name}' is quantised as {found.tensor_type.name}, "
                "which can't be dequantised here"
            ) from error
        if name.endswith("q_proj.weight"):
            values = _hugging_face_rotary(values, self._config["num_attention_heads"])
        if name.endswith("k_proj.weight"):
            values = _hugging_face_rotary(values, self._config["num_key_value_heads"])
        return round_to_bfloat16(values)

    @cached_property
    def _reader(self) -> GGUFReader:
        return _open(self._path)

    @cached_property
    def _tensors(self) -> dict[str, ReaderTensor]:
        return {tensor.name: tensor for tensor in self._reader.tensors}

    @cached_property
    def _config(self) -> dict[str, Any]:
        return _config_from(self._field, self._tensors, self._path)

    def _field(self, key: str) -> Any:
        field = self._reader.fields.get(key)
        return None if field is None else field.contents()


def _open(path: Path) -> GGUFReader:
    try:
        return _CheckedReader(path)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {error.strerror}") from error
    # The reader indexes past the end of a short header in many ways; each means the same.
    except (ValueError, IndexError, KeyError, OverflowError, TypeError) as error:
        size = path.stat().st_size
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise ModelError(f"{path}: not a GGUF file (it starts with {magic!r})") from error
        raise ModelError(
            f"{path}: truncated or damaged inside its header, it has {size} bytes ({error}); "
            "fetch it again"
        ) from error


def _config_from(field: Any, tensors: dict[str, Any], path: Path) -> dict[str, Any]:
    keys = {
        "hidden_size": "llama.embedding_length",
        "intermediate_size": "llama.feed_forward_length",
        "num_hidden_layers": "llama.block_count",
        "num_attention_heads": "llama.attention.head_count",
        "num_key_value_heads": "llama.attention.head_count_kv",
        "head_dim": "llama.attention.key_length",
        "max_position_embeddings": "llama.context_length",
        "bos_token_id": "tokenizer.ggml.bos_token_id",
        "eos_token_id": "tokenizer.ggml.eos_token_id",
    }
    config = {ours: value for ours, key in keys.items() if (value := field(key)) is not None}
    epsilon = field("llama.attention.layer_norm_rms_epsilon")
    if epsilon is not None:
        # Stored as float32: the shortest decimal that rounds to it is what was meant.
        config["rms_norm_eps"] = float(str(np.float32(epsilon)))
    if "token_embd.weight" in tensors:
        config["vocab_size"] = int(tensors["token_embd.weight"].shape[1])
    config["rope_theta"] = float(field("llama.rope.freq_base") or 10000.0)
    config["rope_scaling"] = _rope_scaling(field, tensors, path)
    config["tie_word_embeddings"] = "output.weight" not in tensors
    config["architectures"] = [SUPPORTED_ARCHITECTURE]
    return config


def _refuse_architecture(architecture: object) -> None:
    if architecture is None:
        raise ModelError("its metadata names no architecture; give the GGUF of a llama model")
    if architecture != "llama":
        raise ModelError(
            f"architecture '{architecture}' is not supported (supported: llama); give another model"
        )


def _rope_scaling(field: Any, tensors: dict[str, Any], path: Path) -> dict[str, Any] | None:
    kind = field("llama.rope.scaling.type")
    if kind not in (None, "none"):
        raise ModelError(f"{path}: rope scaling '{kind}' is not supported in a GGUF file")
    if "rope_freqs.weight" not in tensors:
        return None
    factors = dequantize(
        tensors["rope_freqs.weight"].data, tensors["rope_freqs.weight"].tensor_type
    )
    return {"rope_type": "factors", "factors": [float(factor) for factor in factors]}


def _gguf_name(name: str) -> str:
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_IN_LAYER[rest]}"


def _hugging_face_rotary(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows of a head: interleaved pairs (llama.cpp) to two halves (Hugging Face)."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)
