"""The protocol of a blob store, and the check of a digest that every store shares."""

import re
from typing import Protocol

from services.errors import BlobError

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Blobs(Protocol):
    """Bytes under the lower-case SHA-256 hex of their content. Never changed, so safe to share."""

    def put(self, data: bytes) -> str:
        """Store and return the digest. Storing the same bytes twice is the same as once.

        Raises BlobError when the store can't be written (full, read-only)."""

    def get(self, digest: str) -> bytes:
        """The bytes, verified against their digest. Raises BlobError (missing, damaged)."""

    def has(self, digest: str) -> bool:
        """Whether the store holds this digest (content not verified)."""


def checked(digest: str) -> str:
    """A digest as it is, or BlobError: a digest becomes a path, so nothing else may pass."""
    if not _DIGEST.fullmatch(digest):
        raise BlobError(f"{digest[:80]!r} is no blob digest (64 lower-case hex digits)")
    return digest
