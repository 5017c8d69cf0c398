"""Content digests: how Perpetune names things. Pure, stdlib + msgspec only."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

_CANONICAL = msgspec.json.Encoder(order="deterministic")


def digest_bytes(data: bytes) -> str:
    """Lower-case SHA-256 hex of `data` (64 characters): the name of a blob."""
    return hashlib.sha256(data).hexdigest()


def digest_value(value: Any) -> str:
    """Digest of a value's canonical JSON (sorted keys), for anything msgspec can encode."""
    return digest_bytes(_CANONICAL.encode(value))


def short_id(prefix: str, *parts: Any) -> str:
    """A readable content id: `prefix` plus 12 hex digits of the digest of `parts`.

    12 hex digits are 48 bits: a campaign of 100,000 candidates collides with probability 2e-5,
    and a collision is seen as a repeat, never as a wrong verdict.
    """
    return f"{prefix}{digest_value(parts)[:12]}"
