"""A ledger of one process, with the real codec and the real compare-and-swap."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from protos import codec, subjects
from services.clock import Clock, RealClock
from services.errors import BusUnavailable, Conflict
from services.ledger.base import Journal, Recorded, recorded
from services.telemetry import inject


class MemoryLedger:
    """One log, shared by whoever holds this object."""

    def __init__(
        self, accepts: Any, clock: Clock | None = None, journal: Journal | None = None
    ) -> None:
        self._accepts = accepts
        self._clock = clock or RealClock()
        self._journal = journal
        self._log: list[Recorded] = []
        self._last: dict[tuple[str, str], int] = {}
        self._grown = asyncio.Event()
        self._closed = False
        self._lost_acks = 0
        self._refusals = 0

    async def append(self, entity: str, id: str, event: msgspec.Struct, expect: int | None) -> int:
        subject = subjects.event(entity, id, subjects.message_name(event))
        raw = codec.encode(event)
        await asyncio.sleep(0)  # like a real one, it lets others run before it commits
        if self._refusals:
            self._refusals -= 1
            raise BusUnavailable(f"{subject} was not confirmed (planned)")
        actual = self._last.get((entity, id), 0)
        if expect is not None and expect != actual:
            raise Conflict(entity, id, expect, actual)
        seq = len(self._log) + 1
        self._log.append(recorded(seq, self._clock.now_s(), subject, raw, inject(), self._accepts))
        self._last[entity, id] = seq
        if self._journal is not None:
            self._journal.note(seq, subject, raw)
        self._wake()
        if self._lost_acks:
            self._lost_acks -= 1
            raise BusUnavailable(f"{subject} was not confirmed (planned, though committed)")
        return seq

    async def last(self, entity: str, id: str) -> int:
        subjects.events_of(entity, id)
        return self._last.get((entity, id), 0)

    async def head(self) -> int:
        return len(self._log)

    async def read(self, from_seq: int = 1, until: int | None = None) -> AsyncIterator[Recorded]:
        head = len(self._log)
        end = head if until is None else min(until, head)
        for index in range(max(from_seq, 1) - 1, end):
            yield self._log[index]

    async def follow(self, from_seq: int = 1) -> AsyncIterator[Recorded]:
        index = max(from_seq, 1) - 1
        while not self._closed:
            grown = self._grown
            while index < len(self._log):
                index += 1
                yield self._log[index - 1]
            await grown.wait()

    async def close(self) -> None:
        self._closed = True
        self._wake()

    def lose_acks(self, count: int = 1) -> None:
        """For tests: the next appends commit, but their callers are told BusUnavailable."""
        self._lost_acks += count

    def refuse_appends(self, count: int = 1) -> None:
        """For tests: the next appends don't commit, and their callers are told BusUnavailable."""
        self._refusals += count

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
