"""Bringing one side of a trial into a process: which files, knobs and libraries differ from it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_host.trees import text_of
from protos.candidate import Scalar
from protos.trial import Side
from services.blobs import Blobs


@dataclass(frozen=True)
class Tree:
    """A whole engine tree: paths and library names to blob digests, knobs to values."""

    files: Mapping[str, str]
    knobs: Mapping[str, Scalar] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, side: Side) -> Tree:
        return cls(side.files, side.knobs, side.libraries)


def patch(base: Tree, wanted: Tree, blobs: Blobs) -> dict[str, Any]:
    """The arguments of `load` that turn `base` into `wanted`. Raises TreeError or BlobError."""
    files: dict[str, str | None] = {}
    for path, digest in wanted.files.items():
        if path.endswith(".py") and base.files.get(path) != digest:
            files[path] = text_of(blobs, digest)
    for path in base.files:
        if path.endswith(".py") and path not in wanted.files:
            files[path] = None
    libraries = {
        name: base64.b64encode(blobs.get(digest)).decode("ascii")
        for name, digest in wanted.libraries.items()
        if base.libraries.get(name) != digest
    }
    return {"files": files, "knobs": dict(wanted.knobs), "libraries": libraries}


def lay_out_libraries(libraries: Mapping[str, str], blobs: Blobs, home: Path) -> dict[str, str]:
    """Libraries as files, one folder a digest; name to path."""
    paths: dict[str, str] = {}
    for name, digest in libraries.items():
        folder = home / "libraries" / digest[:32]
        path = folder / f"lib{name}.so"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            making = folder / f".making-{name}"
            making.write_bytes(blobs.get(digest))
            making.chmod(0o555)
            making.rename(path)
        paths[name] = str(path)
    return paths
