"""How an actor works through its mail: commands with settling, ledger events in order, signals."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import reduce
from operator import or_
from typing import Any

import msgspec
from opentelemetry.trace import SpanKind
from structlog.typing import FilteringBoundLogger

from protos import subjects
from services.bus import Delivery, Inbox
from services.bus.base import SignalStream
from services.clock import Clock
from services.errors import Conflict, TroubleError
from services.hooks import EventHook
from services.ledger import Recorded
from services.telemetry import failed, span

RETRIED = (TroubleError, Conflict)
EVENT_RETRY_S = (0.1, 0.5, 2.0, 5.0)

Method = Callable[..., Awaitable[Any]]


class CommandDesk:
    """Takes a room's commands, runs what was declared for each, and settles it.

    `gave_up` is called before a command becomes a dead letter, to write the event it ends in.
    """

    def __init__(
        self,
        handlers: dict[type[msgspec.Struct], Method],
        gave_up: Callable[[Any, str], Awaitable[None]],
        log: FilteringBoundLogger,
    ) -> None:
        self._handlers = handlers
        self._gave_up = gave_up
        self._log = log

    @property
    def accepts(self) -> Any:
        """The union of the declared commands."""
        return reduce(or_, self._handlers)

    async def work(
        self, inbox: Inbox, at_once: int, start: Callable[[Delivery], asyncio.Task[None]]
    ) -> None:
        """Take mail until the inbox closes, but only as long as fewer than `at_once` are open."""
        free = asyncio.Semaphore(at_once)
        await free.acquire()
        async for delivery in inbox:
            start(delivery).add_done_callback(lambda _: free.release())
            await free.acquire()

    async def handle(self, delivery: Delivery) -> None:
        """Run the handler of one command and settle it; whatever is raised is settled too."""
        name = subjects.message_name(delivery.command)
        with span(
            f"handle {name}", delivery.context, SpanKind.CONSUMER, attempt=delivery.attempt
        ) as current:
            try:
                if delivery.spent:
                    await self._give_up(delivery, f"delivered {delivery.attempt} times, never done")
                    return
                async with _kept(delivery):
                    await self._handlers[type(delivery.command)](delivery.command, delivery)
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
                self._log.exception("a command handler failed", command=name)
                failed(current, f"bug: {type(error).__name__}")
                await self._give_up(delivery, f"bug: {type(error).__name__}: {error}")

    async def _again(self, delivery: Delivery, reason: str) -> None:
        self._log.warning("trouble", subject=delivery.subject, reason=reason)
        if delivery.settled:
            return
        if delivery.attempt >= delivery.policy.max_attempts:
            await self._give_up(delivery, f"gave up after {delivery.attempt} attempts: {reason}")
        else:
            await delivery.retry(reason)

    async def _give_up(self, delivery: Delivery, reason: str) -> None:
        self._log.error("gave up", subject=delivery.subject, reason=reason)
        if delivery.settled:
            return
        try:
            await self._gave_up(delivery.command, reason)
        except RETRIED as error:
            self._log.warning("its end could not be written yet", reason=str(error))
            return  # not settled: it comes again, and is given up again
        except Exception:  # a bug in the hook must not keep the mail alive for ever
            self._log.exception("gave_up failed", subject=delivery.subject)
        try:
            await delivery.dead_letter(reason)
        except TroubleError as error:
            self._log.warning("no dead letter yet", reason=str(error))


async def hear(stream: SignalStream, handler: Method, log: FilteringBoundLogger) -> None:
    """Run a handler for each signal; what it raises is logged and the signal dropped."""
    async for signal in stream:
        try:
            await handler(signal)
        except Exception:  # lossy by contract, but a bug is still shown
            log.exception("a signal handler failed", what=signal.what)


async def see(
    events: AsyncIterator[Recorded],
    hooks: list[tuple[EventHook, Method]],
    clock: Clock,
    log: FilteringBoundLogger,
) -> None:
    """Run the handlers of each event in order; after trouble the same one again. Raises bugs."""
    async for recorded in events:
        for hook, handler in hooks:
            if not hook.messages or isinstance(recorded.event, hook.messages):
                await _see_one(recorded, handler, clock, log)


async def _see_one(
    recorded: Recorded, handler: Method, clock: Clock, log: FilteringBoundLogger
) -> None:
    attempt = 0
    while True:
        with span(f"saw {recorded.entity}", recorded.context, seq=recorded.seq) as current:
            try:
                await handler(recorded)
                return
            except RETRIED as error:
                failed(current, str(error))
                log.warning("trouble", seq=recorded.seq, reason=str(error))
        await clock.sleep(EVENT_RETRY_S[min(attempt, len(EVENT_RETRY_S) - 1)])
        attempt += 1


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
