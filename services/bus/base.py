"""The bus's protocol, and what every bus does the same way: settling, streaming signals."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import msgspec
from opentelemetry.context import Context

from protos import codec, subjects
from services.log import get_log
from services.telemetry import extract

SIGNALS_KEPT = 4096
HAND_BACK_DELAY_S = 0.01

Request = TypeVar("Request", bound=msgspec.Struct)
Reply = TypeVar("Reply", bound=msgspec.Struct)
Handler = Callable[[Request], Awaitable[msgspec.Struct]]


@dataclass(frozen=True)
class DeliveryPolicy:
    """How a room's mail is delivered.

    Mail that isn't settled within `ack_wait_s` comes again; after `max_attempts` deliveries it is
    given up; a retry waits the attempt's entry of `retry_delays_s` (the last one from then on);
    `max_in_flight` bounds what may be unsettled over all members of the room.
    """

    ack_wait_s: float = 15.0
    max_attempts: int = 5
    retry_delays_s: tuple[float, ...] = (0.5, 2.0, 5.0, 15.0)
    max_in_flight: int = 64

    def delay_s(self, attempt: int) -> float:
        return self.retry_delays_s[min(attempt, len(self.retry_delays_s)) - 1]


@dataclass(frozen=True)
class DeadLetter:
    """Mail that could not be handled, byte for byte. `attempts` counts its deliveries."""

    subject: str
    reason: str
    attempts: int
    raw: bytes
    time_s: float


@dataclass(frozen=True)
class Signal:
    """A lossy message. `room` is its sender's, `id` whom or what it is about."""

    room: str
    what: str
    id: str
    body: Any
    context: Context


class Settler(Protocol):
    """What a transport does for one delivered message."""

    async def ack(self) -> None: ...
    async def nak(self, delay_s: float) -> None: ...
    async def term(self) -> None: ...
    async def working(self) -> None: ...
    async def bury(self, reason: str, attempts: int) -> None: ...


class Delivery:
    """One delivered command. Exactly one of ack, retry and dead_letter settles it.

    `attempt` counts deliveries from 1, as far as this process and the broker remember.
    """

    def __init__(
        self,
        subject: str,
        command: msgspec.Struct,
        raw: bytes,
        headers: dict[str, str],
        attempt: int,
        policy: DeliveryPolicy,
        settler: Settler,
    ) -> None:
        place = subjects.parse(subject)
        self.subject = subject
        self.command = command
        self.key = place.key if isinstance(place, subjects.CommandSubject) else None
        self.raw = raw
        self.attempt = attempt
        self.policy = policy
        self.context: Context = extract(headers)
        self._settler = settler
        self._settled_as: str | None = None

    @property
    def settled(self) -> bool:
        """Whether it was acked, retried or given up."""
        return self._settled_as is not None

    @property
    def spent(self) -> bool:
        """Whether it was delivered more often than the policy allows, so must not be tried."""
        return self.attempt > self.policy.max_attempts

    async def ack(self) -> None:
        """It is done, and what came of it is committed."""
        self._settle_as("ack")
        await self._settler.ack()

    async def retry(self, reason: str, delay_s: float | None = None) -> bool:
        """Deliver it again later. False: this was the last attempt, it is a dead letter now."""
        if self.attempt >= self.policy.max_attempts:
            await self.dead_letter(f"gave up after {self.attempt} attempts: {reason}")
            return False
        self._settle_as("retry")
        wait_s = self.policy.delay_s(self.attempt) if delay_s is None else delay_s
        await self._settler.nak(min(wait_s, max(self.policy.retry_delays_s)))
        return True

    async def hand_back(self) -> None:
        """Give it to the next reader at once: this one stops, which is no fault of the mail."""
        self._settle_as("handed back")
        await self._settler.nak(HAND_BACK_DELAY_S)

    async def dead_letter(self, reason: str) -> None:
        """Put it aside with its raw bytes. Raises BusUnavailable: it will come again."""
        self._settle_as("dead letter")
        await self._settler.bury(reason, self.attempt)
        await self._settler.term()

    async def working(self) -> None:
        """It is still being worked on: `ack_wait_s` starts anew."""
        if self._settled_as is None:
            await self._settler.working()

    def _settle_as(self, how: str) -> None:
        if self._settled_as is not None:
            raise RuntimeError(f"{self.subject}: settled as {self._settled_as}, then as {how}")
        self._settled_as = how


class Inbox(Protocol):
    """A room's commands, one at a time. Iterate it from one task."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Delivery: ...
    async def aclose(self) -> None:
        """Take no more mail; iteration ends. What was taken and not settled comes again."""


class Subscription(Protocol):
    """Something that listens until it is closed."""

    async def aclose(self) -> None: ...


class SignalStream:
    """Signals as they come. A reader that is too slow loses the oldest."""

    def __init__(self, accepts: Any, close: Callable[[], Awaitable[None]]) -> None:
        self._accepts = accepts
        self._close = close
        self._waiting: asyncio.Queue[Signal | None] = asyncio.Queue(SIGNALS_KEPT)

    def offer(self, subject: str, raw: bytes, headers: dict[str, str] | None) -> None:
        """Called by the transport. What can't be read is dropped: signals are lossy."""
        try:
            place = subjects.parse(subject)
            body = codec.decode(raw, self._accepts)
        except (codec.UndecodableError, subjects.SubjectError) as error:
            get_log("bus").debug("unreadable signal", subject=subject, error=str(error))
            return
        if isinstance(place, subjects.SignalSubject):
            self._put(Signal(place.room, place.what, place.id, body, extract(headers)))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Signal:
        signal = await self._waiting.get()
        if signal is None:
            raise StopAsyncIteration
        return signal

    async def aclose(self) -> None:
        self._put(None)
        await self._close()

    def _put(self, signal: Signal | None) -> None:
        if self._waiting.full():
            self._waiting.get_nowait()
        self._waiting.put_nowait(signal)


class Bus(Protocol):
    """One process's end of the bus. Structs carry literal tags; `accepts` is a type or a union."""

    async def publish(
        self, room: str, command: msgspec.Struct, *, key: str | None = None, once: bool = False
    ) -> bool:
        """Give a room durable work; returns when the broker holds it.

        `once` needs a key: False when this message was published under this key before.
        Raises BusUnavailable (stored or not), StorageFull, CodecError, SubjectError.
        """

    async def commands(
        self,
        room: str,
        durable: str,
        accepts: Any,
        *,
        key: str | None = None,
        policy: DeliveryPolicy | None = None,
    ) -> Inbox:
        """Take a room's mail. Processes that share `durable` compete for it; with `key` only what
        is addressed to it. Mail that `accepts` can't decode becomes a dead letter here."""

    async def ask(
        self,
        room: str,
        request: msgspec.Struct,
        reply: type[Reply],
        *,
        timeout_s: float = 5.0,
        key: str | None = None,
    ) -> Reply:
        """A request and its reply. Raises NoAnswer, AskTimeout, AskTrouble (all trouble),
        AskRefused, UndecodableError."""

    async def answer(
        self,
        room: str,
        request: type[Request],
        handler: Handler[Request],
        *,
        key: str | None = None,
    ) -> Subscription:
        """Serve a request; members of a room that serve the same one share the load.

        Each request runs in a task of its own. What the handler raises goes to the asker: Refused
        as AskRefused, TroubleError as AskTrouble, and a bug as AskTrouble without its text, logged
        here with its traceback."""

    async def signal(self, room: str, id: str, body: msgspec.Struct) -> None:
        """Tell whoever listens, once. Lost without a word when nobody does."""

    async def signals(
        self, accepts: Any, *, room: str = "*", what: str = "*", id: str = "*"
    ) -> SignalStream:
        """Listen to signals from now on."""

    async def dead_letters(self, room: str) -> list[DeadLetter]:
        """What a room could not handle, oldest first."""

    async def close(self) -> None:
        """End every inbox, answer and signal stream of this end."""
