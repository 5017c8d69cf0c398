"""The ledger's protocol and its records."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from opentelemetry.context import Context

from protos import codec, subjects
from services.telemetry import extract, trace_id_of


@dataclass(frozen=True)
class Unreadable:
    """Stands for an event that this version doesn't know. Folds pass over it."""

    name: str
    reason: str


@dataclass(frozen=True)
class Recorded:
    """One event as the ledger holds it.

    `seq` is its place in the whole log (from 1); `time_s` seconds since the epoch by the ledger's
    clock; `raw` the body as it was written; `context` lets a span continue the trace it belongs to.
    """

    seq: int
    time_s: float
    entity: str
    id: str
    event: Any
    trace_id: str | None
    raw: bytes
    context: Context = field(default_factory=Context, compare=False, repr=False)


class Journal(Protocol):
    """The seam for an independent, hash-chained record of what was committed here."""

    def note(self, seq: int, subject: str, raw: bytes) -> None:
        """Called after each commit of this process, in its order. An exception reaches the caller
        of `append`, though the event is in the ledger."""


class Ledger(Protocol):
    """An append-only log of events, ordered by one sequence over all entities."""

    async def append(self, entity: str, id: str, event: msgspec.Struct, expect: int | None) -> int:
        """Commit an event and return its sequence.

        `expect` is the sequence of the entity's last event, whatever that event was; 0 says that
        the entity has none. None commits unconditionally.
        Raises Conflict (nothing written), StorageFull (nothing written), CodecError, SubjectError,
        BusUnavailable (written or not: read the entity to know).
        """

    async def last(self, entity: str, id: str) -> int:
        """The sequence of the entity's last event; 0 when it has none."""

    async def head(self) -> int:
        """The sequence of the log's last event; 0 when it is empty."""

    def read(self, from_seq: int = 1, until: int | None = None) -> AsyncIterator[Recorded]:
        """Events from `from_seq` to `until`, both included, or to what is stored at the call."""

    def follow(self, from_seq: int = 1) -> AsyncIterator[Recorded]:
        """Events from `from_seq` on, for ever, each once and in order, broker restarts included."""

    async def close(self) -> None:
        """Release the connection. Followers end."""


def recorded(
    seq: int, time_s: float, subject: str, raw: bytes, headers: Mapping[str, str], accepts: Any
) -> Recorded:
    """A record from what is stored. Raises SubjectError when the subject is no event's."""
    place = subjects.parse(subject)
    if not isinstance(place, subjects.EventSubject):
        raise subjects.SubjectError(f"{subject!r} is no event")
    event: Any
    try:
        event = codec.decode(raw, accepts)
    except codec.UndecodableError as error:
        event = Unreadable(place.event, str(error))
    context = extract(headers)
    return Recorded(seq, time_s, place.entity, place.id, event, trace_id_of(headers), raw, context)
