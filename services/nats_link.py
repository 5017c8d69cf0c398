"""One connection to the broker, shared by the bus and the ledger of a process."""

import asyncio
import calendar
import json
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    DiscardPolicy,
    PubAck,
    RePublish,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from protos import subjects
from services.errors import BusUnavailable, StorageFull
from services.log import get_log

EVENTS_STREAM = "PT_EVENTS"
COMMANDS_STREAM = "PT_COMMANDS"
DEAD_STREAM = "PT_DEAD"
MIB = 1024 * 1024
EVENTS_BYTES = 2048 * MIB
COMMANDS_BYTES = 1024 * MIB
DEAD_BYTES = 64 * MIB
# Commands are work to do, not a record: the ledger says what became of them.
COMMANDS_KEPT_S = 24 * 3600.0

ACK_TIMEOUT_S = 2.0
RETRY_PAUSE_S = 0.1
PAGE_MESSAGES = 256
PAGE_BYTES = 4 * MIB
DUPLICATE_WINDOW_S = 120.0

# err_code of the server's JSON errors
WRONG_LAST_SEQUENCE = (10071, 10164)
STORAGE_FULL = (10023, 10047, 10077)

_NOT_NOW = (
    nats.errors.TimeoutError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.NoRespondersError,
    nats.js.errors.NoStreamResponseError,
    nats.js.errors.ServiceUnavailableError,
)


@dataclass(frozen=True)
class Stored:
    """A message as a stream holds it. `time_s` is the broker's, in seconds since the epoch."""

    seq: int
    subject: str
    time_s: float
    raw: bytes
    headers: Mapping[str, str]


class Link:
    """A connection that never stops reconnecting, and the three streams behind it."""

    def __init__(self, client: Client) -> None:
        self.nc = client
        self.js: JetStreamContext = client.jetstream(timeout=ACK_TIMEOUT_S)

    @classmethod
    async def open(cls, url: str, name: str, timeout_s: float = 10.0) -> "Link":
        """Connect and make sure of the streams.

        Raises BusUnavailable when nothing answers within `timeout_s`.
        """
        log = get_log("nats")

        async def noted(error: Exception) -> None:
            log.debug("connection trouble", error=str(error) or type(error).__name__)

        try:
            async with asyncio.timeout(timeout_s):
                client = await nats.connect(
                    url,
                    name=name,
                    error_cb=noted,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.2,
                    connect_timeout=2,
                    ping_interval=5,
                    max_outstanding_pings=2,
                )
                link = cls(client)
                await link._ensure_streams()
        except (TimeoutError, OSError, nats.errors.Error) as error:
            raise BusUnavailable(
                f"no broker with JetStream answers at {url} within {timeout_s:g} s"
            ) from error
        return link

    async def publish(
        self,
        subject: str,
        body: bytes,
        headers: Mapping[str, str],
        message_id: str | None = None,
        give_up_after_s: float = 30.0,
    ) -> PubAck:
        """Store a message durably, trying again through a restart of the broker.

        The tries share one message id, so the message is stored once. Raises BusUnavailable (it may
        or may not be stored), StorageFull (it isn't), or the server's APIError.
        """
        sent = {**headers, "Nats-Msg-Id": message_id or uuid.uuid4().hex}
        deadline_s = time.monotonic() + give_up_after_s
        while True:
            try:
                stored = await self.js.publish(subject, body, timeout=ACK_TIMEOUT_S, headers=sent)
                heed_cancel()
                return stored
            except nats.js.errors.APIError as error:
                if error.err_code in STORAGE_FULL:
                    raise StorageFull(
                        f"the broker's storage is full: {error.description}"
                    ) from error
                if not isinstance(error, _NOT_NOW):
                    raise
                last: Exception = error
            except _NOT_NOW as error:
                last = error
            except nats.errors.ConnectionClosedError as error:
                raise BusUnavailable("this connection to the broker was closed") from error
            if time.monotonic() > deadline_s:
                raise BusUnavailable(f"{subject} was not confirmed: {last}") from last
            await asyncio.sleep(RETRY_PAUSE_S)

    async def page(self, stream: str, pattern: str, from_seq: int) -> list[Stored]:
        """Up to PAGE_MESSAGES stored messages from `from_seq` on; empty when there are none.

        Raises BusUnavailable when the broker doesn't answer in time.
        """
        ask = {
            "seq": max(from_seq, 1),
            "next_by_subj": pattern,
            "batch": PAGE_MESSAGES,
            "max_bytes": PAGE_BYTES,
        }
        inbox = self.nc.new_inbox()
        try:
            replies = await self.nc.subscribe(inbox)
            try:
                subject = f"$JS.API.DIRECT.GET.{stream}"
                await self.nc.publish(subject, json.dumps(ask).encode(), reply=inbox)
                found: list[Stored] = []
                while True:
                    message = await replies.next_msg(timeout=ACK_TIMEOUT_S)
                    heed_cancel()
                    status = (message.headers or {}).get("Status")
                    if status in ("204", "404"):
                        return found
                    if status is not None:
                        raise BusUnavailable(f"{stream} can't be read: status {status}")
                    found.append(_stored(message))
            finally:
                await replies.unsubscribe()
        except (TimeoutError, nats.errors.Error) as error:
            raise BusUnavailable(f"{stream} can't be read: {error}") from error

    async def last(self, stream: str, pattern: str) -> Stored | None:
        """The newest stored message under a filter. Raises BusUnavailable."""
        ask = json.dumps({"last_by_subj": pattern}).encode()
        subject = f"$JS.API.DIRECT.GET.{stream}"
        try:
            message = await self.nc.request(subject, ask, timeout=ACK_TIMEOUT_S)
        except (TimeoutError, nats.errors.Error) as error:
            raise BusUnavailable(f"{stream} can't be read: {error}") from error
        status = (message.headers or {}).get("Status")
        if status == "404":
            return None
        if status is not None:
            raise BusUnavailable(f"{stream} can't be read: status {status}")
        return _stored(message)

    async def head(self, stream: str) -> int:
        """The last sequence of a stream; 0 when nothing was ever stored. Raises BusUnavailable."""
        try:
            return int((await self.js.stream_info(stream)).state.last_seq)
        except (TimeoutError, nats.errors.Error) as error:
            raise BusUnavailable(f"{stream} can't be read: {error}") from error

    async def barrier(self) -> None:
        """Return once the broker has seen everything that was sent before.

        A request that nobody serves, since the client's own `flush` overtakes what it has buffered.
        Raises TimeoutError or the client's error.
        """
        with suppress(nats.errors.NoRespondersError):
            await self.nc.request(subjects.NOBODY, timeout=ACK_TIMEOUT_S)

    async def close(self) -> None:
        """Send what is buffered, then disconnect. A dead broker doesn't hold it up."""
        if self.nc.is_closed:
            return
        if self.nc.is_connected:
            try:
                await self.barrier()
            except (TimeoutError, nats.errors.Error) as error:
                get_log("nats").debug("could not flush", error=str(error))
        await self.nc.close()

    async def _ensure_streams(self) -> None:
        for config in _stream_configs():
            try:
                await self.js.add_stream(config)
            except nats.js.errors.BadRequestError as error:
                if error.err_code != 10058:  # it exists with another configuration: keep that one
                    raise


def heed_cancel() -> None:
    """Raise the cancellation that the client library may just have swallowed.

    Before Python 3.12, `asyncio.wait_for` drops a cancellation that comes together with the result.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _stream_configs() -> list[StreamConfig]:
    common = StreamConfig(
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        num_replicas=1,
        allow_direct=True,
        duplicate_window=DUPLICATE_WINDOW_S,
    )
    return [
        common.evolve(
            name=EVENTS_STREAM,
            subjects=[subjects.ALL_EVENTS],
            max_bytes=EVENTS_BYTES,
            deny_delete=True,
            # A hint to followers, sent once an event is stored.
            republish=RePublish(
                src=subjects.ALL_EVENTS, dest=subjects.STORED_EVENTS, headers_only=True
            ),
        ),
        common.evolve(
            name=COMMANDS_STREAM,
            subjects=[subjects.ALL_COMMANDS],
            max_bytes=COMMANDS_BYTES,
            max_age=COMMANDS_KEPT_S,
        ),
        common.evolve(name=DEAD_STREAM, subjects=[subjects.ALL_DEAD], max_bytes=DEAD_BYTES),
    ]


def _stored(message: Msg) -> Stored:
    headers = dict(message.headers or {})
    return Stored(
        seq=int(headers["Nats-Sequence"]),
        subject=headers["Nats-Subject"],
        time_s=_epoch_s(headers["Nats-Time-Stamp"]),
        raw=message.data or b"",
        headers=headers,
    )


def _epoch_s(stamp: str) -> float:
    """Seconds since the epoch of an RFC 3339 time in UTC with up to nine decimals."""
    whole, _, rest = stamp.rstrip("Z").partition(".")
    seconds = time.strptime(whole, "%Y-%m-%dT%H:%M:%S")
    return calendar.timegm(seconds) + (float(f"0.{rest}") if rest else 0.0)
