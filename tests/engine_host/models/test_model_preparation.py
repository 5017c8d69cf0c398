"""Preparation: folders, seeds, the cache, the command line, and what goes wrong with them."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine_host.models import ModelError, prepare, verify

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def write_folder(seeded, tmp_path):
    """Write the seeded model as a Hugging Face folder, in one file or more."""

    def write(shards=1, dtype=torch.bfloat16, **config):
        folder = tmp_path / "model"
        folder.mkdir()
        raw = json.loads((seeded.folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(raw | config))
        (folder / "tokenizer.json").write_text((seeded.folder / "tokenizer.json").read_text())
        content = bytearray((seeded.folder / "weights.bin").read_bytes())
        index = json.loads((seeded.folder / "index.json").read_text())["tensors"]
        tensors = {}
        for name, entry in index.items():
            count = int(np.prod(entry["shape"]))
            flat = torch.frombuffer(
                content, dtype=torch.bfloat16, count=count, offset=entry["offset"]
            )
            tensors[name] = flat.view(entry["shape"]).to(dtype).clone()
        if shards == 1:
            save_file(tensors, folder / "model.safetensors")
            return folder
        names = list(tensors)
        files = {
            name: f"model-{i % shards + 1}-of-{shards}.safetensors" for i, name in enumerate(names)
        }
        for file in set(files.values()):
            save_file({n: tensors[n] for n in names if files[n] == file}, folder / file)
        weight_map = {"metadata": {}, "weight_map": files}
        (folder / "model.safetensors.index.json").write_text(json.dumps(weight_map))
        return folder

    return write


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_folder_gives_the_weights_it_was_written_from(
    seeded, write_folder, tmp_path, shards, dtype
):
    prepared = prepare(str(write_folder(shards, dtype)), tmp_path)
    for name in ("weights.bin", "index.json", "config.json", "tokenizer.json"):
        assert (prepared.folder / name).read_bytes() == (seeded.folder / name).read_bytes()


def test_both_spellings_of_rope_settings_are_read(seeded, write_folder, tmp_path):
    raw = json.loads((seeded.folder / "config.json").read_text())
    together = {**raw["rope_scaling"], "rope_theta": raw["rope_theta"]}
    folder = write_folder(rope_theta=None, rope_scaling=None, rope_parameters=together)
    prepared = prepare(str(folder), tmp_path)
    assert json.loads((prepared.folder / "config.json").read_text()) == raw


def test_a_folder_without_an_output_layer_is_tied(write_folder, tmp_path):
    folder = write_folder(tie_word_embeddings=True)
    facts = prepare(str(folder), tmp_path).facts
    assert facts["tied"]
    assert facts["bytes_per_pass"] == facts["weight_bytes"]


def test_a_missing_shard_is_named(write_folder, tmp_path):
    folder = write_folder(3)
    (folder / "model-2-of-3.safetensors").unlink()
    with pytest.raises(ModelError, match="1 of 3 weight files missing: model-2-of-3"):
        prepare(str(folder), tmp_path)


def test_a_truncated_shard_says_how_many_bytes_it_needs(write_folder, tmp_path):
    folder = write_folder()
    path = folder / "model.safetensors"
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=f"need {whole} bytes and it has {whole - 1000}"):
        prepare(str(folder), tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, r"'Qwen2ForCausalLM' is not .*LlamaForCausalLM"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        ({"attention_bias": True}, "'attention_bias' is set"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"quantization_config": {}}, "quantised safetensors"),
        ({"hidden_size": 100}, "has shape .* where its configuration asks for"),
        ({"num_hidden_layers": 6}, r"lacks 9 of 57 tensors, among them model\.layers\.5"),
    ],
)
def test_what_no_engine_supports_is_named(config, message, write_folder, tmp_path):
    with pytest.raises(ModelError, match=message) as raised:
        prepare(str(write_folder(**config)), tmp_path)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.glob("models/*")) == []


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_one_of_its_files_says_which(name, write_folder, tmp_path):
    folder = write_folder()
    (folder / name).unlink()
    with pytest.raises(ModelError, match=name):
        prepare(str(folder), tmp_path)


def test_an_unknown_model_is_answered_with_what_is_accepted(tmp_path):
    with pytest.raises(ModelError, match="unknown model 'gpt-9'; accepted: smollm2, seed:"):
        prepare("gpt-9", tmp_path)
    with pytest.raises(ModelError, match=r"no seeded shape 'vast' \(there are: small, even\)"):
        prepare("seed:vast", tmp_path)
    with pytest.raises(ModelError, match="no such file"):
        prepare("missing.gguf", tmp_path)


def test_another_seed_is_another_model(seeded, tmp_path):
    other = prepare("seed:small:7", tmp_path)
    assert other.digest != seeded.digest
    assert other.facts | {"name": ""} == seeded.facts | {"name": ""}
    ours, theirs = ((m.folder / "weights.bin").read_bytes() for m in (other, seeded))
    assert ours != theirs


def test_an_untied_embedding_is_not_read_in_every_pass(seeded):
    facts = seeded.facts
    assert not facts["tied"]
    assert facts["weight_bytes"] - facts["bytes_per_pass"] == 2 * facts["vocab"] * facts["hidden"]


def test_tensors_are_aligned(seeded):
    index = json.loads((seeded.folder / "index.json").read_text())["tensors"]
    assert {entry["offset"] % 64 for entry in index.values()} == {0}


def test_a_model_is_prepared_once(seeded):
    before = (seeded.folder / "weights.bin").stat()
    again = prepare("seed:small", seeded.folder.parents[1])
    assert again == seeded
    after = (seeded.folder / "weights.bin").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_damage_is_found_by_the_sums(tmp_path):
    prepared = prepare("seed:even", tmp_path)
    verify(prepared.folder)
    with (prepared.folder / "weights.bin").open("r+b") as file:
        file.seek(1000)
        file.write(b"\x55\xaa")
    with pytest.raises(ModelError, match=r"weights\.bin: damaged"):
        verify(prepared.folder)


def command(*arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "engine_host.models", "prepare", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def test_two_processes_may_prepare_the_same_model_at_once(seeded, tmp_path):
    running = [command("seed:small", "--home", str(tmp_path)) for _ in range(3)]
    answers = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], answers
    assert [path.name for path in (tmp_path / "models").iterdir()] == [seeded.digest]


def test_the_command_prints_one_json_line(seeded, tmp_path):
    process = command("seed:small", "--home", str(tmp_path), "--verify")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err == ""
    answer = json.loads(out)
    assert out.count("\n") == 1
    assert answer["digest"] == seeded.digest
    assert answer["facts"] == seeded.facts
    assert Path(answer["folder"]) == tmp_path / "models" / seeded.digest


def test_the_command_prints_one_line_for_an_error(tmp_path):
    process = command("gpt-9", "--home", str(tmp_path))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert err.startswith("error: unknown model 'gpt-9'")
    assert err.count("\n") == 1


def _allow_one_megabyte() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def test_a_disk_that_refuses_more_leaves_nothing_behind(tmp_path):
    process = command("seed:small", "--home", str(tmp_path), preexec_fn=_allow_one_megabyte)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert err.startswith(f"error: can't write the prepared model under {tmp_path}: ")
    assert err.count("\n") == 1
    assert list((tmp_path / "models").iterdir()) == []


def test_a_home_that_cannot_be_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelError, match="can't write the prepared model under"):
        prepare("seed:small", tmp_path / "file")


def test_preparation_needs_no_torch():
    code = "import sys, engine_host.models; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n"
