"""Blobs of one process."""

from protos.ids import digest_bytes
from services.blobs.base import checked
from services.errors import BlobError


class MemoryBlobs:
    """A dict of blobs, for tests and simulations."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        digest = digest_bytes(data)
        self._held[digest] = bytes(data)
        return digest

    def get(self, digest: str) -> bytes:
        data = self._held.get(checked(digest))
        if data is None:
            raise BlobError(f"blob {digest} is not here")
        if digest_bytes(data) != digest:
            raise BlobError(f"blob {digest} is damaged: its bytes have another digest")
        return data

    def has(self, digest: str) -> bool:
        return checked(digest) in self._held

    def damage(self, digest: str, data: bytes) -> None:
        """For tests: what a bad disk does."""
        self._held[checked(digest)] = data
