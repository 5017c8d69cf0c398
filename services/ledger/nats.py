"""The ledger in one JetStream stream."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from protos import codec, subjects
from services.errors import BusUnavailable, Conflict
from services.ledger.base import Journal, Recorded, recorded
from services.nats_link import EVENTS_STREAM, WRONG_LAST_SEQUENCE, Link, Stored
from services.telemetry import inject

# Hints say when there is something to read; one may be missed, so the log is also read this often.
POLL_S = 1.0
RETRY_PAUSE_S = 0.2
READ_PATIENCE_S = 30.0

T = TypeVar("T")


class NatsLedger:
    """One connection's view of the stream of all events."""

    def __init__(self, link: Link, accepts: Any, journal: Journal | None = None) -> None:
        self._link = link
        self._accepts = accepts
        self._journal = journal
        self._closed = asyncio.Event()

    async def append(self, entity: str, id: str, event: msgspec.Struct, expect: int | None) -> int:
        subject = subjects.event(entity, id, subjects.message_name(event))
        raw = codec.encode(event)
        message_id = uuid.uuid4().hex
        headers = inject()
        if expect is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(expect)
            headers["Nats-Expected-Last-Subject-Sequence-Subject"] = subjects.events_of(entity, id)
        try:
            seq = (await self._link.publish(subject, raw, headers, message_id)).seq
        except APIError as error:
            if error.err_code not in WRONG_LAST_SEQUENCE or expect is None:
                raise
            seq = await self._committed_before(entity, id, expect, message_id)
        if self._journal is not None:
            self._journal.note(seq, subject, raw)
        return seq

    async def last(self, entity: str, id: str) -> int:
        pattern = subjects.events_of(entity, id)
        found = await _patiently(lambda: self._link.last(EVENTS_STREAM, pattern))
        return found.seq if found else 0

    async def head(self) -> int:
        return await _patiently(lambda: self._link.head(EVENTS_STREAM))

    async def read(self, from_seq: int = 1, until: int | None = None) -> AsyncIterator[Recorded]:
        head = await self.head()
        end = head if until is None else min(until, head)
        next_seq = from_seq
        while next_seq <= end:
            page = await _patiently(partial(self._page, next_seq))
            if not page:
                return
            for stored in page:
                if stored.seq > end:
                    return
                yield self._record(stored)
            next_seq = page[-1].seq + 1

    async def follow(self, from_seq: int = 1) -> AsyncIterator[Recorded]:
        hint = asyncio.Event()

        async def hinted(_: Msg) -> None:
            hint.set()

        hints = await self._link.nc.subscribe(subjects.STORED_EVENTS, cb=hinted)
        next_seq = from_seq
        try:
            while not self._closed.is_set():
                hint.clear()
                try:
                    page = await self._page(next_seq)
                except BusUnavailable:
                    await asyncio.sleep(RETRY_PAUSE_S)
                    continue
                for stored in page:
                    next_seq = stored.seq + 1
                    yield self._record(stored)
                if not page:
                    await _wait_s(hint, POLL_S)
        finally:
            await _unsubscribe(hints)

    async def close(self) -> None:
        self._closed.set()

    async def _page(self, from_seq: int) -> list[Stored]:
        return await self._link.page(EVENTS_STREAM, subjects.ALL_EVENTS, from_seq)

    def _record(self, stored: Stored) -> Recorded:
        return recorded(
            stored.seq, stored.time_s, stored.subject, stored.raw, stored.headers, self._accepts
        )

    async def _committed_before(self, entity: str, id: str, expect: int, message_id: str) -> int:
        """After a lost comparison: was it an earlier try of the same append that won?"""
        pattern = subjects.events_of(entity, id)
        after = await _patiently(lambda: self._link.page(EVENTS_STREAM, pattern, expect + 1))
        if after and after[0].headers.get("Nats-Msg-Id") == message_id:
            return after[0].seq
        raise Conflict(entity, id, expect, await self.last(entity, id))


async def _patiently(read: Callable[[], Awaitable[T]]) -> T:
    """Read, trying again through a restart of the broker. Raises BusUnavailable in the end."""
    deadline_s = time.monotonic() + READ_PATIENCE_S
    while True:
        try:
            return await read()
        except BusUnavailable:
            if time.monotonic() > deadline_s:
                raise
        await asyncio.sleep(RETRY_PAUSE_S)


async def _wait_s(event: asyncio.Event, limit_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()


async def _unsubscribe(subscription: Subscription) -> None:
    with suppress(NatsError):  # the connection may be gone, and the subscription with it
        await subscription.unsubscribe()
