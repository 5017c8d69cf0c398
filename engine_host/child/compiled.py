"""What an engine's compiler made, as one archive: given to a child before it builds, taken after.

It lies in a folder of the child's own scratch: what one process writes there no other one reads,
but through the host, and only one that runs the same code.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from types import ModuleType

MAX_BYTES = 20 << 20  # of an archive: it travels in one frame


def folder_of(package: ModuleType) -> str | None:
    """Where an engine keeps what it compiles (`COMPILED`, below TMPDIR); None: it doesn't."""
    name = getattr(package, "COMPILED", None)
    return os.path.join(tempfile.gettempdir(), name) if isinstance(name, str) else None


def restore(archive: str, folder: str) -> bool:
    """Unpack an archive, if there is one, into a folder that may not exist yet."""
    if not archive or not os.path.exists(archive):
        return False
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return True


def pack(folder: str) -> bytes:
    """The folder as an archive; empty where there is nothing to keep, or too much."""
    if not os.path.isdir(folder):
        return b""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as packed:
        packed.add(folder, arcname=".")
    content = made.getvalue()
    return content if len(content) <= MAX_BYTES else b""
