"""Content-addressed bytes: what is too large for a message travels as its digest."""

from services.blobs.base import Blobs
from services.blobs.directory import DirectoryBlobs
from services.blobs.memory import MemoryBlobs

__all__ = ["Blobs", "DirectoryBlobs", "MemoryBlobs"]
