"""Digests of the ledger's events: what an entry of the journal of promotions covers."""

import hashlib

from services.ledger import Ledger, Recorded
from services.promotions import Seal


class RangeDigest:
    """SHA-256 over events in order: each one's sequence, entity, id, and bytes as written."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add(self, recorded: Recorded) -> None:
        head = f"{recorded.seq} {recorded.entity} {recorded.id} {len(recorded.raw)}\n"
        self._sum.update(head.encode())
        self._sum.update(recorded.raw)

    def hex(self) -> str:
        return self._sum.hexdigest()


async def seal_range(ledger: Ledger, from_seq: int, upto: int) -> str:
    """The digest of all events from `from_seq` to `upto`, both included."""
    found = RangeDigest()
    async for recorded in ledger.read(from_seq, upto):
        found.add(recorded)
    return found.hex()


async def last_of(ledger: Ledger, entity: str, id: str) -> Recorded | None:
    """The entity's last event; None when it has none."""
    seq = await ledger.last(entity, id)
    if seq:
        async for recorded in ledger.read(seq, seq):
            return recorded
    return None


def seal(recorded: Recorded) -> Seal:
    """One event's seal."""
    return Seal(recorded.seq, hashlib.sha256(recorded.raw).hexdigest())
