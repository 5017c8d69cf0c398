"""Engine trees on disk, content-addressed: `<home>/trees/<digest>/slim/model.py`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from protos.ids import digest_bytes, digest_value
from services.blobs import Blobs

ENGINES_FOLDER = Path(__file__).parent / "engines"


class TreeError(Exception):
    """A path in a tree can't be laid out; one line that names it."""


def start_files(engine: str, blobs: Blobs) -> dict[str, str]:
    """Put the shipped tree of an engine into blobs; its paths to blob digests.

    A folder that is no package itself holds the tree's packages by their names.
    """
    folder = ENGINES_FOLDER / engine
    prefix = f"{engine}/" if (folder / "__init__.py").is_file() else ""
    files: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not path.is_symlink() and "__pycache__" not in inside.parts:
            files[f"{prefix}{inside.as_posix()}"] = blobs.put(path.read_bytes())
    return files


def lay_out(files: dict[str, str], blobs: Blobs, home: Path) -> Path:
    """The folder that holds exactly these files, made once, whole or not. Raises TreeError."""
    folder = home / "trees" / digest_value(files)[:32]
    if folder.is_dir():
        if is_intact(folder, files):
            return folder
        shutil.rmtree(folder)
    for path in files:
        check_path(path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        for path, digest in files.items():
            target = making / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(blobs.get(digest))
        making.chmod(0o755)
        making.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process laid out the same content first
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def is_intact(folder: Path, files: dict[str, str]) -> bool:
    """Whether a laid-out folder still holds exactly these contents."""
    found = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    return found.keys() == files.keys() and all(
        digest_bytes(path.read_bytes()) == files[name] for name, path in found.items()
    )


def check_path(path: str) -> None:
    """Raise TreeError unless the path stays inside its tree."""
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or any(p in ("", ".", "..") for p in parts):
        raise TreeError(f"path {path!r} doesn't stay inside the engine's tree")


def text_of(blobs: Blobs, digest: str) -> str:
    """A source file's text. Raises TreeError if it isn't UTF-8."""
    try:
        return blobs.get(digest).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TreeError(f"blob {digest[:12]} is no UTF-8 text") from error
