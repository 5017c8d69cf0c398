"""Puts an export into an empty folder, whole or not at all."""

import errno
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from services.export.errors import ExportError


def check_empty(folder: Path) -> None:
    """Raise ExportError unless the folder is empty or doesn't exist yet."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ExportError(f"{folder} is not empty: give --to a new folder")
    except NotADirectoryError:
        raise ExportError(f"{folder} is a file: give --to a new folder") from None
    except OSError as error:
        raise ExportError(f"{folder} can't be read: {error.strerror}") from error


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Raises ExportError when the folder isn't empty or can't be written."""
    check_empty(folder)
    for path in files:
        if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
            raise ExportError(f"{path!r} would lie outside the export")
    making = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=".exporting-", dir=folder.parent))
        for path, content in files.items():
            target = making / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o755 if content.startswith(b"#!") else 0o644)
        making.chmod(0o755)
        os.replace(making, folder)
    except OSError as error:
        why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise ExportError(f"{folder} can't be written: {why}") from error
    finally:
        if making is not None:
            shutil.rmtree(making, ignore_errors=True)
