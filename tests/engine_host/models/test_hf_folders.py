"""A prepared model written as a Hugging Face folder."""

import json

import pytest
from safetensors import safe_open

from engine_host.models import ModelError, prepare
from engine_host.models.hf_folder import hf_folder


def test_a_written_folder_prepares_to_the_same_weights(seeded, tmp_path):
    again = prepare(str(hf_folder(seeded.folder)), tmp_path)
    first, second = (p.folder / "weights.bin" for p in (seeded, again))
    assert first.read_bytes() == second.read_bytes()
    ours, theirs = ({**p.facts, "name": ""} for p in (seeded, again))
    assert ours == theirs


def test_the_safetensors_file_is_one_to_its_own_library(seeded):
    index = json.loads((seeded.folder / "index.json").read_text())["tensors"]
    with safe_open(hf_folder(seeded.folder) / "model.safetensors", "np") as file:
        assert set(file.keys()) == set(index)
        for name in index:
            assert list(file.get_slice(name).get_shape()) == index[name]["shape"]


def test_a_folder_is_written_once(seeded):
    folder = hf_folder(seeded.folder)
    before = (folder / "model.safetensors").stat().st_ino
    assert hf_folder(seeded.folder) == folder
    assert (folder / "model.safetensors").stat().st_ino == before


@pytest.mark.parametrize("files", [(), ("tokenizer.json",)])
def test_another_architecture_is_named_before_anything_that_is_missing(files, tmp_path):
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in files:
        (tmp_path / name).write_text("{}")

    with pytest.raises(ModelError, match="architecture 'GPT2LMHeadModel' is not supported"):
        prepare(str(tmp_path), tmp_path / "home")
