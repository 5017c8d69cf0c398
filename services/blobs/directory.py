"""Blobs in a folder that the processes of one machine share."""

import os
import shutil
import tempfile
from pathlib import Path

from protos.ids import digest_bytes
from services.blobs.base import checked
from services.errors import BlobError


class DirectoryBlobs:
    """One read-only file a blob, at `<folder>/<first two digits>/<digest>`, written atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        digest = digest_bytes(data)
        target = self._place(digest)
        if target.exists():
            return digest
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._write(target, data)
        except OSError as error:
            raise BlobError(f"blob can't be written to {self._folder}: {error.strerror}") from error
        return digest

    def put_file(self, source: Path) -> str:
        """Store a file's content. Raises BlobError when it can't be read or written."""
        try:
            return self.put(source.read_bytes())
        except OSError as error:
            raise BlobError(f"{source} can't be read: {error.strerror}") from error

    def get(self, digest: str) -> bytes:
        place = self._place(digest)
        try:
            data = place.read_bytes()
        except FileNotFoundError as error:
            raise BlobError(f"blob {digest} is not in {self._folder}") from error
        except OSError as error:
            raise BlobError(f"blob {digest} can't be read: {error.strerror}") from error
        if digest_bytes(data) != digest:
            raise BlobError(f"blob {digest} is damaged: its bytes have another digest ({place})")
        return data

    def has(self, digest: str) -> bool:
        return self._place(digest).exists()

    def path(self, digest: str) -> Path:
        """The file of a blob, its content verified now. Raises BlobError."""
        self.get(digest)
        return self._place(digest)

    def free_bytes(self) -> int:
        """What the file system under the store has left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self._folder).free

    def _place(self, digest: str) -> Path:
        return self._folder / checked(digest)[:2] / digest

    @staticmethod
    def _write(target: Path, data: bytes) -> None:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o444)
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
