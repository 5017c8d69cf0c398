"""Compiled code that engines may start from: one archive a digest of all that can reach a graph.

An archive is made by the first process that compiled for that digest, and read, as a private copy,
by later ones of the same digest. What a candidate compiles is never given to another's code.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from engine_host.errors import TrialFailedError
from engine_host.loading import Tree
from protos.ids import digest_value

if TYPE_CHECKING:
    from engine_host.trial_process import TrialProcess
    from engine_host.zygotes import EngineKind


def archive(home: Path, kind: EngineKind, tree: Tree, model: str, precision: str) -> str:
    """The path of the archive of a tree, which may not exist yet; empty: its engine compiles none.

    Left out of the digest is what `kind` says no graph can hold: paths of its serving loop, and
    some knobs. The folder is the archive's own; a child sees it read-only.
    """
    if not kind.compiles:
        return ""
    files = {path: d for path, d in tree.files.items() if not path.startswith(kind.interpreted)}
    knobs = {name: v for name, v in tree.knobs.items() if name not in kind.uncompiled_knobs}
    digest = digest_value([files, dict(tree.libraries), knobs, model, precision])
    folder = home / "compiled" / digest[:32]
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder / "archive")


def keep(process: TrialProcess, where: str, limit_s: float) -> None:
    """Take from a process what its engine compiled, if nothing is kept yet for its digest."""
    if not where or os.path.exists(where):
        return
    try:
        packed = process.ask("compiled", "start", limit_s)
        content = base64.b64decode(packed, validate=True) if isinstance(packed, str) else b""
    except (TrialFailedError, binascii.Error):
        return  # the next one compiles again
    if content:
        _write(Path(where), content)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and only by the first."""
    handle, making = tempfile.mkstemp(prefix=".making-", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        os.fchmod(handle, 0o444)
    os.replace(making, path)
