"""The base of every room: receive, call what was declared, settle.

A finding is a value and its mail is acked. Trouble outside is retried after a bounded delay. A bug
is loud: logged with its traceback, its mail put aside with its raw bytes, and `gave_up` called
first, so that every command ends in an event.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import reduce
from operator import or_
from typing import Any, ClassVar

import msgspec
from opentelemetry.trace import SpanKind

from protos import subjects
from protos.messages import Heartbeat
from services.bus import Delivery, DeliveryPolicy
from services.bus.base import SignalStream
from services.errors import Conflict, TroubleError
from services.hooks import AskHook, CommandHook, EventHook, SignalHook, hooks_of
from services.ledger import Recorded
from services.log import get_log
from services.ports import Ports
from services.processes import resident_bytes
from services.telemetry import failed, span

RETRIED = (TroubleError, Conflict)
CANCEL_AGAIN_S = 0.5
EVENT_RETRY_S = (0.1, 0.5, 2.0, 5.0)

Method = Callable[..., Awaitable[Any]]


class Actor:
    """A room's mailbox and life. Subclass it and declare hooks (services/hooks.py).

    `room` names it on the bus; `concurrency` commands are handled at once; `policy` says how its
    mail is delivered; at the end a handler gets `grace_s` before it is cancelled and its mail goes
    to the next. `heartbeat_s` None sends no heartbeats.
    """

    room: ClassVar[str]
    concurrency: int = 1
    policy: DeliveryPolicy = DeliveryPolicy()
    grace_s: float = 5.0
    heartbeat_s: float | None = 2.0

    def __init__(self, ports: Ports, *, key: str | None = None, instance: str = "0") -> None:
        self.bus = ports.bus
        self.ledger = ports.ledger
        self.blobs = ports.blobs
        self.clock = ports.clock
        self.key = key
        self.instance = instance
        self.log = get_log(self.room)
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._spawned: set[asyncio.Task[Any]] = set()
        self._handling: set[asyncio.Task[None]] = set()

    async def started(self) -> None:
        """Run once by `run` before any mail. An exception ends the actor."""

    def events_from(self) -> int:
        """Asked after `started`: the first ledger sequence that `on_event` hooks get to see."""
        return 1

    async def gave_up(self, command: Any, reason: str) -> None:
        """Run by the actor before a command becomes a dead letter: write the event it ends in.

        TroubleError: it is tried again when the mail comes again. Another exception is logged, and
        the mail becomes a dead letter all the same.
        """

    async def stopping(self) -> None:
        """Run once by `run` after the last mail. An exception ends the process with an error."""

    def vitals(self) -> dict[str, bool | int | float | str]:
        """What the heartbeat says besides memory. An exception ends the actor."""
        return {}

    def stop(self) -> None:
        """Ask the actor to end: no new mail, what is being handled gets its grace."""
        self._stop.set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run something beside the mail until the end. Its exception ends the actor."""
        task = asyncio.create_task(work, name=f"{self.room}: {name}")
        self._spawned.add(task)
        task.add_done_callback(self._part_ended)
        return task

    async def run(self) -> None:
        """Live until `stop`, or until something that may not fail did, which is raised."""
        await self.started()
        closers = await self._open()
        self.log.info("running", key=self.key)
        try:
            await self._stop.wait()
        finally:
            await self._wind_down(closers)
        if self._failure is not None:
            raise self._failure
        await self.stopping()
        self.log.info("stopped")

    async def _open(self) -> list[Callable[[], Awaitable[None]]]:
        hooks = hooks_of(self)
        closers: list[Callable[[], Awaitable[None]]] = []
        events: list[tuple[EventHook, Method]] = []
        commands: dict[type[msgspec.Struct], Method] = {}
        for hook, method in hooks:
            match hook:
                case AskHook(message):
                    answer = await self.bus.answer(self.room, message, method, key=self.key)
                    closers.append(answer.aclose)
                case SignalHook(message, room, id):
                    what = subjects.message_name(message)
                    stream = await self.bus.signals(message, room=room, what=what, id=id)
                    closers.append(stream.aclose)
                    self.spawn(self._hear(stream, method), f"signals {what}")
                case EventHook():
                    events.append((hook, method))
                case CommandHook(message):
                    commands[message] = method
        if events:
            self.spawn(self._follow(events), "events")
        if commands:
            self.spawn(self._take(commands, closers), "commands")
        if self.heartbeat_s is not None:
            self.spawn(self._beat(self.heartbeat_s), "heartbeat")
        return closers

    async def _take(
        self,
        handlers: dict[type[msgspec.Struct], Method],
        closers: list[Callable[[], Awaitable[None]]],
    ) -> None:
        accepts: Any = reduce(or_, handlers)
        durable = self.room if self.key is None else f"{self.room}-{self.key}"
        inbox = await self.bus.commands(
            self.room, durable, accepts, key=self.key, policy=self.policy
        )
        closers.append(inbox.aclose)
        free = asyncio.Semaphore(self.concurrency)
        await free.acquire()
        async for delivery in inbox:
            task = asyncio.create_task(self._handle(handlers[type(delivery.command)], delivery))
            self._handling.add(task)
            task.add_done_callback(self._part_ended)
            task.add_done_callback(lambda _: free.release())
            await free.acquire()  # mail is taken only when somebody can work on it

    async def _handle(self, handler: Method, delivery: Delivery) -> None:
        name = subjects.message_name(delivery.command)
        with span(
            f"handle {name}", delivery.context, SpanKind.CONSUMER, attempt=delivery.attempt
        ) as current:
            try:
                if delivery.spent:
                    await self._give_up(delivery, f"delivered {delivery.attempt} times, never done")
                    return
                async with _kept(delivery):
                    await handler(delivery.command, delivery)
                if not delivery.settled:
                    await delivery.ack()
            except asyncio.CancelledError:
                if not delivery.settled:
                    with suppress(TroubleError):
                        await delivery.hand_back()
                raise
            except RETRIED as error:
                failed(current, str(error))
                await self._again(delivery, str(error))
            except Exception as error:  # a bug: loud, and only this piece of mail pays for it
                self.log.exception("a command handler failed", command=name)
                failed(current, f"bug: {type(error).__name__}")
                await self._give_up(delivery, f"bug: {type(error).__name__}: {error}")

    async def _again(self, delivery: Delivery, reason: str) -> None:
        self.log.warning("trouble", subject=delivery.subject, reason=reason)
        if delivery.settled:
            return
        if delivery.attempt >= delivery.policy.max_attempts:
            await self._give_up(delivery, f"gave up after {delivery.attempt} attempts: {reason}")
        else:
            await delivery.retry(reason)

    async def _give_up(self, delivery: Delivery, reason: str) -> None:
        self.log.error("gave up", subject=delivery.subject, reason=reason)
        if delivery.settled:
            return
        try:
            await self.gave_up(delivery.command, reason)
        except RETRIED as error:
            self.log.warning("its end could not be written yet", reason=str(error))
            return  # not settled: it comes again, and is given up again
        except Exception:  # a bug in the hook must not keep the mail alive for ever
            self.log.exception("gave_up failed", subject=delivery.subject)
        try:
            await delivery.dead_letter(reason)
        except TroubleError as error:
            self.log.warning("no dead letter yet", reason=str(error))

    async def _hear(self, stream: SignalStream, handler: Method) -> None:
        async for signal in stream:
            try:
                await handler(signal)
            except Exception:  # lossy by contract, but a bug is still shown
                self.log.exception("a signal handler failed", what=signal.what)

    async def _follow(self, hooks: list[tuple[EventHook, Method]]) -> None:
        async for recorded in self.ledger.follow(self.events_from()):
            for hook, method in hooks:
                if not hook.messages or isinstance(recorded.event, hook.messages):
                    await self._saw(method, recorded)

    async def _saw(self, handler: Method, recorded: Recorded) -> None:
        attempt = 0
        while True:
            with span(f"saw {recorded.entity}", recorded.context, seq=recorded.seq) as current:
                try:
                    await handler(recorded)
                    return
                except RETRIED as error:
                    failed(current, str(error))
                    self.log.warning("trouble", seq=recorded.seq, reason=str(error))
            await self.clock.sleep(EVENT_RETRY_S[min(attempt, len(EVENT_RETRY_S) - 1)])
            attempt += 1

    async def _beat(self, every_s: float) -> None:
        while True:
            beat = Heartbeat(self.room, self.instance, resident_bytes(), self.vitals())
            await self.bus.signal(self.room, self.key or self.instance, beat)
            await self.clock.sleep(every_s)

    async def _wind_down(self, closers: list[Callable[[], Awaitable[None]]]) -> None:
        for close in closers:
            await close()
        if self._handling:
            await asyncio.wait(self._handling, timeout=self.grace_s)
        left: set[asyncio.Task[Any]] = {*self._handling, *self._spawned}
        while left:  # again and again: a cancellation can be swallowed (see nats_link.heed_cancel)
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)

    def _part_ended(self, task: asyncio.Task[Any]) -> None:
        self._spawned.discard(task)
        self._handling.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        self.log.error("a part of the room failed", part=task.get_name(), exc_info=task.exception())
        if self._failure is None:
            self._failure = task.exception()
        self._stop.set()


@asynccontextmanager
async def _kept(delivery: Delivery) -> AsyncIterator[None]:
    """Tell the broker in time, again and again, that a command is still being worked on."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(delivery.policy.ack_wait_s / 3)
            await delivery.working()

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
