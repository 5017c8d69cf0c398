"""The bus over NATS: JetStream for commands and dead letters, plain NATS for the rest."""

import asyncio
from contextlib import suppress
from typing import Any, Self

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from opentelemetry.trace import SpanKind

from protos import codec, subjects
from services.bus.asking import read_answer, serve
from services.bus.base import (
    HAND_BACK_DELAY_S,
    DeadLetter,
    Delivery,
    DeliveryPolicy,
    Handler,
    Inbox,
    Reply,
    Request,
    SignalStream,
    Subscription,
)
from services.errors import AskTimeout, BusUnavailable, NoAnswer
from services.nats_link import COMMANDS_STREAM, DEAD_STREAM, WRONG_LAST_SEQUENCE, Link
from services.telemetry import inject, span

FETCH_S = 1.0  # a fetch over a restart waits out its whole time: short ones, in a loop
RECONNECT_POLL_S = 0.05
REASON_CHARS = 500


class NatsBus:
    """One process's end of the bus."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._open: list[Subscription | SignalStream | Inbox] = []

    async def publish(
        self, room: str, command: msgspec.Struct, *, key: str | None = None, once: bool = False
    ) -> bool:
        subject = subjects.command(room, subjects.message_name(command), key)
        headers = inject()
        if once:
            if key is None:
                raise subjects.SubjectError(f"{subject}: once needs a key")
            headers["Nats-Expected-Last-Subject-Sequence"] = "0"
        try:
            await self._link.publish(subject, codec.encode(command), headers)
        except nats.js.errors.APIError as error:
            if once and error.err_code in WRONG_LAST_SEQUENCE:
                return False
            raise
        return True

    async def commands(
        self,
        room: str,
        durable: str,
        accepts: Any,
        *,
        key: str | None = None,
        policy: DeliveryPolicy | None = None,
    ) -> Inbox:
        pattern = subjects.commands_of(room, key)
        inbox = NatsInbox(self._link, room, pattern, durable, accepts, policy or DeliveryPolicy())
        await inbox.open()
        self._open.append(inbox)
        return inbox

    async def ask(
        self,
        room: str,
        request: msgspec.Struct,
        reply: type[Reply],
        *,
        timeout_s: float = 5.0,
        key: str | None = None,
    ) -> Reply:
        name = subjects.message_name(request)
        subject = subjects.ask(room, name, key)
        raw = codec.encode(request)
        with span(f"ask {name}", kind=SpanKind.CLIENT):
            try:
                message = await self._link.nc.request(
                    subject, raw, timeout=timeout_s, headers=inject()
                )
            except nats.errors.NoRespondersError as error:
                raise NoAnswer(f"nobody serves {subject}") from error
            except TimeoutError as error:
                raise AskTimeout(f"{subject} was not answered within {timeout_s:g} s") from error
            except nats.errors.Error as error:
                raise BusUnavailable(f"{subject} can't be asked: {error}") from error
            return read_answer(message.data, message.headers, reply)

    async def answer(
        self,
        room: str,
        request: type[Request],
        handler: Handler[Request],
        *,
        key: str | None = None,
    ) -> Subscription:
        subject = subjects.ask(room, subjects.message_name(request), key)
        running: set[asyncio.Task[None]] = set()

        async def respond(message: Msg) -> None:
            body, headers = await serve(handler, request, message.data, message.headers)
            with suppress(nats.errors.Error):  # the asker sees a time-out and asks again
                await self._link.nc.publish(message.reply, body, headers=headers)

        async def received(message: Msg) -> None:
            task = asyncio.create_task(respond(message))
            running.add(task)
            task.add_done_callback(running.discard)

        subscription = await self._subscribe(subject, received, queue=room)
        answer = _Closing(subscription)
        self._open.append(answer)
        return answer

    async def signal(self, room: str, id: str, body: msgspec.Struct) -> None:
        subject = subjects.signal(room, subjects.message_name(body), id)
        raw = codec.encode(body)
        if self._link.nc.is_connected:
            with suppress(nats.errors.Error):  # lossy by contract
                await self._link.nc.publish(subject, raw, headers=inject())

    async def signals(
        self, accepts: Any, *, room: str = "*", what: str = "*", id: str = "*"
    ) -> SignalStream:
        async def received(message: Msg) -> None:
            stream.offer(message.subject, message.data, message.headers)

        async def close() -> None:
            await _unsubscribe(subscription)

        stream = SignalStream(accepts, close)
        subscription = await self._subscribe(subjects.signals_of(room, what, id), received)
        self._open.append(stream)
        return stream

    async def dead_letters(self, room: str) -> list[DeadLetter]:
        letters: list[DeadLetter] = []
        next_seq = 1
        while page := await self._link.page(DEAD_STREAM, subjects.dead(room), next_seq):
            next_seq = page[-1].seq + 1
            for stored in page:
                of, why = stored.headers.get("Pt-Subject", ""), stored.headers.get("Pt-Reason", "")
                attempts = int(stored.headers.get("Pt-Attempts", "1"))
                letters.append(DeadLetter(of, why, attempts, stored.raw, stored.time_s))
        return letters

    async def close(self) -> None:
        for listener in self._open:
            await listener.aclose()
        self._open.clear()

    async def _subscribe(self, subject: str, callback: Any, queue: str = "") -> NatsSubscription:
        """Listen, and return once the broker knows of it."""
        try:
            subscription = await self._link.nc.subscribe(subject, queue=queue, cb=callback)
            if self._link.nc.is_connected:
                await self._link.barrier()
        except (TimeoutError, nats.errors.Error) as error:
            raise BusUnavailable(f"can't listen to {subject}: {error}") from error
        return subscription


class NatsInbox:
    """A durable pull consumer. It counts attempts too, as a broker's restart can forget them."""

    def __init__(
        self,
        link: Link,
        room: str,
        pattern: str,
        durable: str,
        accepts: Any,
        policy: DeliveryPolicy,
    ) -> None:
        self._link = link
        self._room = room
        self._pattern = pattern
        self._durable = durable
        self._accepts = accepts
        self._policy = policy
        self._attempts: dict[int, int] = {}
        self._pull: JetStreamContext.PullSubscription | None = None
        self._fetching: asyncio.Task[Msg | None] | None = None
        self._closed = False

    async def open(self) -> None:
        """Make sure of the consumer and bind to it. Raises BusUnavailable."""
        try:
            await self._ensure_consumer()
            self._pull = await self._link.js.pull_subscribe_bind(
                self._durable, stream=COMMANDS_STREAM
            )
        except (TimeoutError, nats.errors.Error) as error:
            raise BusUnavailable(f"can't take mail as {self._durable}: {error}") from error

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while not self._closed:
            if self._fetching is None:
                self._fetching = asyncio.create_task(self._fetch())
            # Not awaited itself: a cancelled reader leaves the fetch, and its mail, for the next.
            fetched = self._fetching
            await asyncio.wait({fetched})
            if self._fetching is not fetched:
                break  # `aclose` took it over
            self._fetching = None
            message = None if fetched.cancelled() else fetched.result()
            if message is None:
                break
            delivery = await self._deliver(message)
            if delivery is not None:
                return delivery
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        # Unsubscribe first: a pull that the broker answers after we left costs an ack wait.
        if self._pull is not None:
            with suppress(nats.errors.Error):
                await self._pull.unsubscribe()
        fetched, self._fetching = self._fetching, None
        if fetched is None:
            return
        fetched.cancel()
        await asyncio.wait({fetched})
        if not fetched.cancelled() and fetched.exception() is None:
            message = fetched.result()
            if message is not None:
                await message.nak(delay=HAND_BACK_DELAY_S)

    async def _fetch(self) -> Msg | None:
        """The next message; None when the inbox was closed."""
        while not self._closed and self._pull is not None:
            if self._link.nc.is_closed:
                return None
            if not self._link.nc.is_connected:
                # Pulls asked for now would be buffered, and all be served at once later.
                await asyncio.sleep(RECONNECT_POLL_S)
                continue
            try:
                return (await self._pull.fetch(1, timeout=FETCH_S))[0]
            except TimeoutError:
                continue
            except nats.js.errors.APIError:  # the consumer is gone, or JetStream isn't up yet
                await asyncio.sleep(RECONNECT_POLL_S)
                with suppress(TimeoutError, nats.errors.Error):
                    await self._ensure_consumer()
            except nats.errors.Error:
                if not self._closed:
                    await asyncio.sleep(RECONNECT_POLL_S)
        return None

    async def _deliver(self, message: Msg) -> Delivery | None:
        meta = message.metadata
        seq = meta.sequence.stream
        self._attempts[seq] = max(self._attempts.get(seq, 0) + 1, meta.num_delivered or 1)
        attempt = self._attempts[seq]
        settler = _NatsSettler(self, message, seq)
        try:
            command = codec.decode(message.data, self._accepts)
        except codec.UndecodableError as error:
            await settler.bury(f"undecodable: {error}", attempt)
            await settler.term()
            return None
        headers = dict(message.headers or {})
        return Delivery(
            message.subject, command, message.data, headers, attempt, self._policy, settler
        )

    def forget(self, seq: int) -> None:
        """This mail is settled for good."""
        self._attempts.pop(seq, None)

    async def bury(self, message: Msg, reason: str, attempts: int) -> None:
        """Store a message with its raw bytes as a dead letter."""
        headers = {k: v for k, v in (message.headers or {}).items() if not k.startswith("Nats-")}
        headers["Pt-Subject"] = message.subject
        headers["Pt-Reason"] = " ".join(reason.split())[:REASON_CHARS]
        headers["Pt-Attempts"] = str(attempts)
        await self._link.publish(subjects.dead(self._room), message.data, headers)

    async def _ensure_consumer(self) -> None:
        wait_s = self._policy.ack_wait_s
        await self._link.js.add_consumer(
            COMMANDS_STREAM,
            ConsumerConfig(
                name=self._durable,
                durable_name=self._durable,
                filter_subject=self._pattern,
                deliver_policy=DeliverPolicy.ALL,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=wait_s,
                backoff=[wait_s, wait_s, 2 * wait_s],
                # The room gives up first and says so; the broker would give up in silence.
                max_deliver=10 * self._policy.max_attempts,
                max_ack_pending=self._policy.max_in_flight,
            ),
        )


class _NatsSettler:
    def __init__(self, inbox: NatsInbox, message: Msg, seq: int) -> None:
        self._inbox = inbox
        self._message = message
        self._seq = seq

    async def ack(self) -> None:
        self._inbox.forget(self._seq)
        await self._settle(self._message.ack())

    async def nak(self, delay_s: float) -> None:
        await self._settle(self._message.nak(delay=max(delay_s, 0.001)))

    async def term(self) -> None:
        self._inbox.forget(self._seq)
        await self._settle(self._message.term())

    async def working(self) -> None:
        await self._settle(self._message.in_progress())

    async def bury(self, reason: str, attempts: int) -> None:
        await self._inbox.bury(self._message, reason, attempts)

    @staticmethod
    async def _settle(sending: Any) -> None:
        """Settling that gets lost means one more delivery, which every room must bear anyway."""
        with suppress(nats.errors.Error):
            await sending


class _Closing:
    def __init__(self, subscription: NatsSubscription) -> None:
        self._subscription = subscription

    async def aclose(self) -> None:
        await _unsubscribe(self._subscription)


async def _unsubscribe(subscription: NatsSubscription) -> None:
    with suppress(nats.errors.Error):  # the connection may be gone, and the subscription with it
        await subscription.unsubscribe()
