"""A model that doesn't fit is refused before a byte of it is read."""

from pathlib import Path

import pytest

from engine_host import memory
from engine_host.errors import HostError
from engine_host.targets import prepare_target
from protos.target import Target
from services.blobs import MemoryBlobs

TOO_MANY_BYTES = 1 << 43


@pytest.mark.parametrize("engine", ["slim", "vllm"])
def test_a_model_too_large_for_memory_is_refused_before_it_is_loaded(tmp_path: Path, engine: str):
    folder = tmp_path / "huge"
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(TOO_MANY_BYTES)  # a hole: it takes no disk
    with pytest.raises(HostError, match=r"^model .*huge is too large for this machine: .* GB"):
        prepare_target(Target(engine, str(folder)), "campaign", tmp_path / "home", MemoryBlobs())
    assert not (tmp_path / "home").exists()


def test_a_folder_without_weights_needs_only_what_engines_do(tmp_path: Path):
    assert memory.weights_bytes(tmp_path) == 0
    memory.require("small", tmp_path, 0)
