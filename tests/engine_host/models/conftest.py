"""A seeded model written out as the formats that people have on disk."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from engine_host.models import PreparedModel, prepare

SPECIAL = 3


def tensors_of(prepared: PreparedModel) -> dict[str, np.ndarray]:
    """Prepared tensors by name, widened to float32."""
    content = (prepared.folder / "weights.bin").read_bytes()
    index = json.loads((prepared.folder / "index.json").read_text())["tensors"]
    widened = {}
    for name, entry in index.items():
        count, offset = math.prod(entry["shape"]), entry["offset"]
        bits = np.frombuffer(content, dtype="<u2", count=count, offset=offset)
        values = (bits.astype(np.uint32) << 16).view(np.float32)
        widened[name] = values.reshape(entry["shape"])
    return widened


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    return prepare("seed:small", tmp_path_factory.mktemp("seeded"))


@pytest.fixture
def write_gguf(seeded: PreparedModel) -> Callable[..., Path]:
    """Write the seeded model as llama.cpp would, with some metadata changed."""

    def write(path: Path, architecture: str = "llama", pre: str = "gpt-2", **more: Any) -> Path:
        config = json.loads((seeded.folder / "config.json").read_text())
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_rope_freq_base(config["rope_theta"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        _add_tokenizer(writer, seeded.folder / "tokenizer.json", pre)
        for name, values in _llama_cpp_tensors(seeded, config).items():
            writer.add_tensor(name, values)
        for name, values in more.items():
            writer.add_tensor(name.replace("__", "."), values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def _add_tokenizer(writer: gguf.GGUFWriter, path: Path, pre: str) -> None:
    vocabulary = Tokenizer.from_file(str(path)).get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([SPECIAL if token.startswith("<|") else 1 for token in tokens])
    merges = json.loads(path.read_text())["model"]["merges"]
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _llama_cpp_tensors(seeded: PreparedModel, config: dict[str, Any]) -> dict[str, np.ndarray]:
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "model.layers": "blk",
    }
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    renamed = {}
    for name, values in tensors_of(seeded).items():
        for kind, count in heads.items():
            if kind in name:
                halves = values.reshape(count, 2, config["head_dim"] // 2, -1)
                values = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        renamed[name] = values
    return renamed
