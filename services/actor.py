"""The base of every room: receive, call what was declared, settle.

A finding is a value and its mail is acked. Trouble outside is retried after a bounded delay. A bug
is loud: logged with its traceback, its mail put aside with its raw bytes, and `gave_up` called
first, so that every command ends in an event.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar

import msgspec

from protos import subjects
from protos.messages import Heartbeat
from services.bus import Delivery, DeliveryPolicy
from services.hooks import AskHook, CommandHook, EventHook, SignalHook, hooks_of
from services.log import get_log
from services.mail import CommandDesk, Method, hear, see
from services.ports import Ports
from services.processes import resident_bytes

CANCEL_AGAIN_S = 0.5

Closer = Callable[[], Awaitable[None]]


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

    async def _open(self) -> list[Closer]:
        closers: list[Closer] = []
        events: list[tuple[EventHook, Method]] = []
        commands: dict[type[msgspec.Struct], Method] = {}
        for hook, method in hooks_of(self):
            match hook:
                case AskHook(message):
                    answer = await self.bus.answer(self.room, message, method, key=self.key)
                    closers.append(answer.aclose)
                case SignalHook(message, room, id):
                    what = subjects.message_name(message)
                    stream = await self.bus.signals(message, room=room, what=what, id=id)
                    closers.append(stream.aclose)
                    self.spawn(hear(stream, method, self.log), f"signals {what}")
                case EventHook():
                    events.append((hook, method))
                case CommandHook(message):
                    commands[message] = method
        if events:
            follower = self.ledger.follow(self.events_from())
            self.spawn(see(follower, events, self.clock, self.log), "events")
        if commands:
            closers.append(await self._open_desk(commands))
        if self.heartbeat_s is not None:
            self.spawn(self._beat(self.heartbeat_s), "heartbeat")
        return closers

    async def _open_desk(self, handlers: dict[type[msgspec.Struct], Method]) -> Closer:
        desk = CommandDesk(handlers, self.gave_up, self.log)
        durable = self.room if self.key is None else f"{self.room}-{self.key}"
        inbox = await self.bus.commands(
            self.room, durable, desk.accepts, key=self.key, policy=self.policy
        )

        def start(delivery: Delivery) -> asyncio.Task[None]:
            task = asyncio.create_task(desk.handle(delivery))
            self._handling.add(task)
            task.add_done_callback(self._part_ended)
            return task

        self.spawn(desk.work(inbox, self.concurrency, start), "commands")
        return inbox.aclose

    async def _beat(self, every_s: float) -> None:
        while True:
            beat = Heartbeat(self.room, self.instance, resident_bytes(), self.vitals())
            await self.bus.signal(self.room, self.key or self.instance, beat)
            await self.clock.sleep(every_s)

    async def _wind_down(self, closers: list[Closer]) -> None:
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
