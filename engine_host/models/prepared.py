"""From a model's name to a folder of weights that an engine maps: found, converted once, cached."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ModelError
from .facts import facts_of
from .llama import normalised_config, tensor_shapes
from .locate import locate
from .source import Source, digest_of_file

FORMAT = "perpetune-weights-1"
"""Part of every digest: a new layout or a repaired conversion gets new folders."""
ALIGNMENT_BYTES = 64
_FILES = ("weights.bin", "index.json", "config.json", "tokenizer.json", "facts.json")


@dataclass(frozen=True)
class PreparedModel:
    """A model ready to be mapped.

    `digest` names its content; `folder` holds the files of docs/ENGINE.md plus `facts.json`;
    `facts` is the content of that file (see `facts.facts_of`).
    """

    digest: str
    folder: Path
    facts: dict[str, Any]


def prepare(model: str, home: Path) -> PreparedModel:
    """Find `model` (see `locate.ACCEPTED`) and convert it, once, to `<home>/models/<digest>/`.

    Raises `ModelError` with one clear line; nothing half-made is left behind.
    """
    source = locate(model)
    digest = hashlib.sha256(f"{FORMAT}/{source.digest()}".encode()).hexdigest()
    folder = home / "models" / digest
    if not _complete(folder):
        with _disk_errors(home):
            _convert(source, model, folder)
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    # The same content may be known by another name: a path and "smollm2", say.
    return PreparedModel(digest=digest, folder=folder, facts={**facts, "name": model})


def verify(folder: Path) -> None:
    """Compare a prepared folder with its SHA256SUMS; `ModelError` if it differs."""
    for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        expected, name = line.split("  ", 1)
        if digest_of_file(folder / name) != expected:
            raise ModelError(f"{folder / name}: damaged; delete the folder to prepare it again")


def _complete(folder: Path) -> bool:
    """The rename that makes a folder is the last step, so what is there is whole."""
    return (folder / "SHA256SUMS").is_file()


def _convert(source: Source, model: str, folder: Path) -> None:
    config = normalised_config(source.config(), model)
    shapes = tensor_shapes(config)
    absent = [name for name in shapes if not source.has(name)]
    if absent:
        raise ModelError(
            f"{model}: lacks {len(absent)} of {len(shapes)} tensors, among them {absent[0]}"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        index = _write_weights(source, model, shapes, making / "weights.bin")
        facts = facts_of(model, config, shapes, source.chat_template())
        _write_text(making / "index.json", json.dumps({"tensors": index}))
        _write_text(making / "config.json", json.dumps(config, indent=2))
        _write_text(making / "tokenizer.json", source.tokenizer_json())
        _write_text(making / "facts.json", json.dumps(facts, indent=2))
        sums = [f"{digest_of_file(making / name)}  {name}\n" for name in _FILES]
        _write_text(making / "SHA256SUMS", "".join(sums))
        making.chmod(0o755)
        _install(making, folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _write_weights(
    source: Source, model: str, shapes: dict[str, tuple[int, ...]], path: Path
) -> dict[str, dict[str, Any]]:
    index: dict[str, dict[str, Any]] = {}
    with path.open("wb") as file:
        for name, shape in shapes.items():
            values = source.tensor(name)
            if values.shape != shape:
                raise ModelError(
                    f"{model}: tensor '{name}' has shape {list(values.shape)} "
                    f"where its configuration asks for {list(shape)}"
                )
            file.write(b"\0" * (-file.tell() % ALIGNMENT_BYTES))
            index[name] = {"dtype": "bfloat16", "shape": list(shape), "offset": file.tell()}
            file.write(values.astype("<u2", copy=False).tobytes())
        file.flush()
        os.fsync(file.fileno())
    return index


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _install(making: Path, folder: Path) -> None:
    try:
        making.rename(folder)
    except OSError:
        # Another process made the same content first; its folder is as good as this one.
        if not _complete(folder):
            raise


@contextmanager
def _disk_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(
            f"can't write the prepared model under {home}: {error.strerror}; "
            "make room there or name another home"
        ) from error
