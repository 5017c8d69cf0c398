"""A bus of one process, with the real codec, that can lose, repeat and fail like a real one."""

import asyncio
import heapq
import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from opentelemetry.trace import SpanKind

from protos import codec, subjects
from services.bus.asking import read_answer, serve
from services.bus.base import (
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
from services.clock import Clock, RealClock
from services.errors import AskTimeout, BusUnavailable, NoAnswer
from services.telemetry import inject, span


@dataclass
class _Mail:
    seq: int
    subject: str
    raw: bytes
    headers: dict[str, str]


@dataclass
class _Consumer:
    """A durable consumer: what is ready, what is out until when, how often each was delivered."""

    pattern: str
    policy: DeliveryPolicy
    ready: list[int] = field(default_factory=list)
    out_until_s: dict[int, float] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    acked: list[int] = field(default_factory=list)
    stirred: asyncio.Event = field(default_factory=asyncio.Event)

    def make_ready(self, seq: int) -> None:
        if seq not in self.ready:
            heapq.heappush(self.ready, seq)
        self.out_until_s.pop(seq, None)
        self.stirred.set()


class MemoryBroker:
    """What the buses of one process share. The methods from `redeliver` on are for tests."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or RealClock()
        self.mail: dict[int, _Mail] = {}
        self.consumers: dict[str, _Consumer] = {}
        self.dead: dict[str, list[DeadLetter]] = defaultdict(list)
        self.answers: dict[str, list[_Answer]] = defaultdict(list)
        self.listeners: list[tuple[str, SignalStream]] = []
        self._numbers = itertools.count(1)
        self._refusals = 0
        self._duplicates = 0

    def store(self, subject: str, raw: bytes, headers: dict[str, str]) -> None:
        """Hold a command and offer it to every consumer whose filter it falls under."""
        if self._refusals:
            self._refusals -= 1
            raise BusUnavailable(f"{subject} was not confirmed (planned)")
        copies = 1 + (self._duplicates > 0)
        self._duplicates -= copies - 1
        for _ in range(copies):
            seq = next(self._numbers)
            self.mail[seq] = _Mail(seq, subject, raw, headers)
            for consumer in self.consumers.values():
                if subjects.matches(subject, consumer.pattern):
                    consumer.make_ready(seq)

    def holds(self, subject: str) -> bool:
        return any(mail.subject == subject for mail in self.mail.values())

    def consumer(self, durable: str, pattern: str, policy: DeliveryPolicy) -> _Consumer:
        """The durable consumer of this name, made when it is new."""
        consumer = self.consumers.get(durable)
        if consumer is None:
            consumer = self.consumers[durable] = _Consumer(pattern, policy)
            for mail in self.mail.values():
                if subjects.matches(mail.subject, pattern):
                    consumer.make_ready(mail.seq)
        consumer.policy = policy
        return consumer

    def redeliver(self, durable: str) -> None:
        """Deliver again what is out, as after a time-out."""
        consumer = self.consumers[durable]
        for seq in list(consumer.out_until_s):
            consumer.make_ready(seq)

    def crash(self, forget_acks: int = 8) -> None:
        """What a kill -9 and a restart do: delivery counts and the last acks are forgotten."""
        for durable, consumer in self.consumers.items():
            self.redeliver(durable)
            for seq in consumer.acked[-forget_acks:]:
                consumer.make_ready(seq)
            consumer.acked.clear()
            consumer.attempts.clear()

    def refuse_publishes(self, count: int = 1) -> None:
        """The next publishes raise BusUnavailable and store nothing."""
        self._refusals += count

    def duplicate_publishes(self, count: int = 1) -> None:
        """The next publishes are stored twice."""
        self._duplicates += count


class MemoryBus:
    """One room's end of a MemoryBroker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._open: list[Subscription | SignalStream | Inbox] = []

    async def publish(
        self, room: str, command: msgspec.Struct, *, key: str | None = None, once: bool = False
    ) -> bool:
        subject = subjects.command(room, subjects.message_name(command), key)
        if once and key is None:
            raise subjects.SubjectError(f"{subject}: once needs a key")
        raw = codec.encode(command)
        await asyncio.sleep(0)
        if once and self._broker.holds(subject):
            return False
        self._broker.store(subject, raw, inject())
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
        consumer = self._broker.consumer(durable, pattern, policy or DeliveryPolicy())
        inbox = _MemoryInbox(self._broker, consumer, room, accepts)
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
            answers = self._broker.answers.get(subject)
            if not answers:
                raise NoAnswer(f"nobody serves {subject}")
            answers.append(answers.pop(0))  # the next request goes to the next member
            task = answers[-1].start(raw, inject())
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
            if not done:
                raise AskTimeout(f"{subject} was not answered within {timeout_s:g} s")
            return read_answer(*task.result(), reply)

    async def answer(
        self,
        room: str,
        request: type[Request],
        handler: Handler[Request],
        *,
        key: str | None = None,
    ) -> Subscription:
        subject = subjects.ask(room, subjects.message_name(request), key)
        answer = _Answer(self._broker, subject, handler, request)
        self._broker.answers[subject].append(answer)
        self._open.append(answer)
        return answer

    async def signal(self, room: str, id: str, body: msgspec.Struct) -> None:
        subject = subjects.signal(room, subjects.message_name(body), id)
        raw = codec.encode(body)
        headers = inject()
        for pattern, stream in list(self._broker.listeners):
            if subjects.matches(subject, pattern):
                stream.offer(subject, raw, headers)

    async def signals(
        self, accepts: Any, *, room: str = "*", what: str = "*", id: str = "*"
    ) -> SignalStream:
        async def forget() -> None:
            if entry in self._broker.listeners:
                self._broker.listeners.remove(entry)

        stream = SignalStream(accepts, forget)
        entry = (subjects.signals_of(room, what, id), stream)
        self._broker.listeners.append(entry)
        self._open.append(stream)
        return stream

    async def dead_letters(self, room: str) -> list[DeadLetter]:
        return list(self._broker.dead[subjects.dead(room)])

    async def close(self) -> None:
        for listener in self._open:
            await listener.aclose()
        self._open.clear()


class _Answer:
    """One member that serves one request."""

    def __init__(
        self, broker: MemoryBroker, subject: str, handler: Handler[Any], accepts: type[Any]
    ) -> None:
        self._broker = broker
        self._subject = subject
        self._handler = handler
        self._accepts = accepts
        self._running: set[asyncio.Task[tuple[bytes, dict[str, str]]]] = set()

    def start(
        self, raw: bytes, headers: dict[str, str]
    ) -> asyncio.Task[tuple[bytes, dict[str, str]]]:
        task = asyncio.create_task(serve(self._handler, self._accepts, raw, headers))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def aclose(self) -> None:
        if self in self._broker.answers[self._subject]:
            self._broker.answers[self._subject].remove(self)


class _MemoryInbox:
    def __init__(self, broker: MemoryBroker, consumer: _Consumer, room: str, accepts: Any) -> None:
        self._broker = broker
        self._consumer = consumer
        self._room = room
        self._accepts = accepts
        self._attempts: dict[int, int] = {}
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            mail = await self._next_mail()
            known = self._attempts.get(mail.seq, 0) + 1
            attempt = self._attempts[mail.seq] = max(known, self._consumer.attempts[mail.seq])
            settler = _MemorySettler(self._broker, self._consumer, mail, self._room)
            try:
                command = codec.decode(mail.raw, self._accepts)
            except codec.UndecodableError as error:
                await settler.bury(f"undecodable: {error}", attempt)
                await settler.term()
                continue
            policy = self._consumer.policy
            return Delivery(mail.subject, command, mail.raw, mail.headers, attempt, policy, settler)

    async def aclose(self) -> None:
        self._closed = True
        self._consumer.stirred.set()

    async def _next_mail(self) -> _Mail:
        consumer, clock = self._consumer, self._broker.clock
        while not self._closed:
            now_s = clock.monotonic_s()
            for seq in [s for s, due_s in consumer.out_until_s.items() if due_s <= now_s]:
                consumer.make_ready(seq)
            if consumer.ready:
                seq = heapq.heappop(consumer.ready)
                consumer.attempts[seq] += 1
                consumer.out_until_s[seq] = now_s + consumer.policy.ack_wait_s
                return self._broker.mail[seq]
            consumer.stirred.clear()
            due_s = min(consumer.out_until_s.values(), default=None)
            await _stirred_or(consumer.stirred, None if due_s is None else due_s - now_s)
        raise StopAsyncIteration


async def _stirred_or(stirred: asyncio.Event, limit_s: float | None) -> None:
    waiter = asyncio.ensure_future(stirred.wait())
    try:
        await asyncio.wait({waiter}, timeout=limit_s)
    finally:
        waiter.cancel()


class _MemorySettler:
    def __init__(self, broker: MemoryBroker, consumer: _Consumer, mail: _Mail, room: str) -> None:
        self._broker = broker
        self._consumer = consumer
        self._mail = mail
        self._room = room

    async def ack(self) -> None:
        if self._consumer.out_until_s.pop(self._mail.seq, None) is not None:
            self._consumer.acked.append(self._mail.seq)

    async def nak(self, delay_s: float) -> None:
        self._consumer.out_until_s[self._mail.seq] = self._broker.clock.monotonic_s() + delay_s
        self._consumer.stirred.set()

    async def term(self) -> None:
        self._consumer.out_until_s.pop(self._mail.seq, None)

    async def working(self) -> None:
        if self._mail.seq in self._consumer.out_until_s:
            until_s = self._broker.clock.monotonic_s() + self._consumer.policy.ack_wait_s
            self._consumer.out_until_s[self._mail.seq] = until_s

    async def bury(self, reason: str, attempts: int) -> None:
        now_s = self._broker.clock.now_s()
        letter = DeadLetter(self._mail.subject, reason, attempts, self._mail.raw, now_s)
        self._broker.dead[subjects.dead(self._room)].append(letter)
