"""What an actor does with its mail, in memory and over a real broker."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from protos.messages import Heartbeat
from services.actor import Actor
from services.blobs import MemoryBlobs
from services.bus import DeliveryPolicy
from services.clock import RealClock
from services.errors import AskRefused, Conflict, Refused, TroubleError
from services.hooks import on_ask, on_command, on_event, on_signal
from services.ports import Ports


class Cook(msgspec.Struct, frozen=True, tag="cook"):
    dish: str


class Wash(msgspec.Struct, frozen=True, tag="wash"):
    dish: str


class Menu(msgspec.Struct, frozen=True, tag="menu"):
    day: str


class Dishes(msgspec.Struct, frozen=True, tag="dishes"):
    names: tuple[str, ...]


class Smoke(msgspec.Struct, frozen=True, tag="smoke"):
    density: int


class Served(msgspec.Struct, frozen=True, tag="served"):
    dish: str


class Spoiled(msgspec.Struct, frozen=True, tag="spoiled"):
    dish: str
    reason: str


QUICK = DeliveryPolicy(ack_wait_s=2.0, max_attempts=3, retry_delays_s=(0.02,))


class Kitchen(Actor):
    """A room whose dishes misbehave on demand: `plan` holds what a dish raises, try by try."""

    room = "kitchen"
    policy = QUICK
    heartbeat_s = None
    grace_s = 0.2

    def __init__(self, ports, plan=None, **kwargs):
        super().__init__(ports, **kwargs)
        self.plan = plan or {}
        self.tried = []
        self.attempts = []
        self.smoke = []
        self.saw = []
        self.given_up = []
        self.hold = None
        self.peak = 0
        self.at_once = 0

    @on_command(Cook)
    async def cook(self, command, delivery):
        self.tried.append(command.dish)
        self.attempts.append(delivery.attempt)
        planned = self.plan.get(command.dish)
        if planned:
            raise planned.pop(0)
        self.at_once += 1
        self.peak = max(self.peak, self.at_once)
        try:
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.at_once -= 1
        await self.ledger.append("candidate", command.dish, Served(command.dish), None)

    @on_ask(Menu)
    async def menu(self, ask):
        if ask.day == "sunday":
            raise Refused("closed on sunday")
        return Dishes(("soup",))

    @on_signal(Smoke, id="oven")
    async def smells(self, signal):
        self.smoke.append(signal.body.density)
        if signal.body.density == 0:
            raise ZeroDivisionError

    @on_event(Spoiled)
    async def spoiled(self, recorded):
        self.saw.append(recorded.event.dish)
        planned = self.plan.get(f"see {recorded.event.dish}")
        if planned:
            raise planned.pop(0)

    async def gave_up(self, command, reason):
        self.given_up.append(command.dish)
        await self.ledger.append("candidate", command.dish, Spoiled(command.dish, reason), None)


@pytest.fixture
async def kitchen(world):
    """A function that runs a kitchen beside the test, and its ports."""

    async def ports():
        ledger = await world.ledger(Served | Spoiled)
        return Ports(await world.bus(), ledger, MemoryBlobs(), RealClock())

    @asynccontextmanager
    async def running(**kwargs):
        actor = Kitchen(await ports(), **kwargs)
        task = asyncio.create_task(actor.run())
        actor.task = task
        try:
            yield actor
        finally:
            actor.stop()
            await asyncio.gather(task, return_exceptions=True)

    running.ports = ports
    return running


async def events_of(ledger):
    return [recorded.event async for recorded in ledger.read()]


async def test_a_command_that_is_handled_is_acked_and_not_handled_again(kitchen, eventually):
    async with kitchen() as actor:
        await actor.bus.publish("kitchen", Cook("soup"))
        await eventually(lambda: actor.tried == ["soup"])
    async with kitchen() as second:
        await second.bus.publish("kitchen", Cook("stew"))
        await eventually(lambda: second.tried)
    assert second.tried == ["stew"]


@pytest.mark.parametrize("trouble", [TroubleError("no gas"), Conflict("trial", "t1", 1, 2)])
async def test_trouble_is_retried_until_it_is_over(kitchen, eventually, trouble):
    async with kitchen(plan={"soup": [trouble, trouble]}) as actor:
        await actor.bus.publish("kitchen", Cook("soup"))
        await eventually(lambda: len(actor.tried) == 3)
        assert actor.attempts == [1, 2, 3]
        assert actor.given_up == []


async def test_trouble_without_end_is_given_up_with_an_event_and_a_dead_letter(kitchen, eventually):
    async with kitchen(plan={"soup": [TroubleError("no gas")] * 9}) as actor:
        await actor.bus.publish("kitchen", Cook("soup"))
        await eventually(lambda: actor.given_up)
        await actor.bus.publish("kitchen", Cook("stew"))
        await eventually(lambda: "stew" in actor.tried)
        (letter,) = await actor.bus.dead_letters("kitchen")
        events = await events_of(actor.ledger)
    assert actor.tried == ["soup", "soup", "soup", "stew"]
    assert letter.raw == b'{"type":"cook","dish":"soup"}'
    assert isinstance(events[0], Spoiled)
    assert "no gas" in events[0].reason


async def test_a_bug_is_not_retried_and_the_next_mail_is_handled(kitchen, eventually):
    async with kitchen(plan={"soup": [KeyError("salt")]}) as actor:
        await actor.bus.publish("kitchen", Cook("soup"))
        await actor.bus.publish("kitchen", Cook("stew"))
        await eventually(lambda: len(actor.tried) == 2)
        (letter,) = await actor.bus.dead_letters("kitchen")
    assert actor.tried == ["soup", "stew"]
    assert actor.given_up == ["soup"]
    assert "KeyError" in letter.reason


async def test_a_command_of_a_kind_nobody_declared_is_a_dead_letter(kitchen, eventually):
    async with kitchen() as actor:
        await actor.bus.publish("kitchen", Wash("plate"))
        await actor.bus.publish("kitchen", Cook("soup"))
        await eventually(lambda: actor.tried)
        (letter,) = await actor.bus.dead_letters("kitchen")
    assert letter.subject.endswith(".wash")


async def test_an_end_that_can_not_be_written_yet_is_written_later(kitchen, eventually):
    async with kitchen(plan={"soup": [KeyError("salt")]}) as actor:
        write, fails = actor.gave_up, [TroubleError("ledger away")]

        async def sometimes(command, reason):
            if fails:
                raise fails.pop()
            await write(command, reason)

        actor.gave_up = sometimes
        actor.plan["soup"] = [KeyError("salt"), KeyError("salt")]
        await actor.bus.publish("kitchen", Cook("soup"))
        await eventually(lambda: actor.given_up)
    assert actor.given_up == ["soup"]


async def test_only_as_many_commands_are_handled_at_once_as_declared(kitchen, eventually):
    async with kitchen() as actor:
        actor.hold = asyncio.Event()
        for dish in ("a", "b", "c"):
            await actor.bus.publish("kitchen", Cook(dish))
        await eventually(lambda: actor.tried == ["a"])
        actor.hold.set()
        await eventually(lambda: len(actor.tried) == 3)
    assert actor.peak == 1


async def test_a_stopped_room_hands_its_mail_to_the_next_one_at_once(kitchen, eventually):
    async with kitchen() as first:
        first.policy = DeliveryPolicy(ack_wait_s=60.0)
        first.hold = asyncio.Event()
        await first.bus.publish("kitchen", Cook("soup"))
        await eventually(lambda: first.tried)
    async with kitchen() as second:
        await eventually(lambda: second.tried == ["soup"])


async def test_asks_are_answered_and_refusals_reach_the_asker(kitchen, eventually):
    async with kitchen() as actor:
        other = (await kitchen.ports()).bus
        await eventually(lambda: actor.log is not None and actor._spawned)
        assert await other.ask("kitchen", Menu("monday"), Dishes) == Dishes(("soup",))
        with pytest.raises(AskRefused, match="closed on sunday"):
            await other.ask("kitchen", Menu("sunday"), Dishes)


async def test_signals_reach_the_room_and_a_failing_one_harms_nothing(kitchen, eventually):
    async with kitchen() as actor:
        await eventually(lambda: actor._spawned)
        for id, density in (("oven", 0), ("street", 5), ("oven", 7)):
            await actor.bus.signal("kitchen", id, Smoke(density))
        await eventually(lambda: len(actor.smoke) == 2)
    assert actor.smoke == [0, 7]


async def test_declared_events_are_seen_in_order_and_again_after_trouble(kitchen, eventually):
    ports = await kitchen.ports()
    for dish in ("a", "b", "c"):
        await ports.ledger.append("candidate", dish, Spoiled(dish, "old"), 0)
    await ports.ledger.append("candidate", "d", Served("d"), 0)
    async with kitchen(plan={"see b": [TroubleError("asleep")]}) as actor:
        await eventually(lambda: len(actor.saw) == 4)
    assert actor.saw == ["a", "b", "b", "c"]


async def test_a_bug_in_an_event_handler_ends_the_room(kitchen):
    ports = await kitchen.ports()
    await ports.ledger.append("candidate", "a", Spoiled("a", "old"), 0)
    async with kitchen(plan={"see a": [KeyError("salt")]}) as actor:
        with pytest.raises(KeyError):
            await asyncio.wait_for(actor.task, 20)


async def test_a_spawned_part_that_fails_ends_the_room(kitchen, eventually):
    async with kitchen() as actor:
        await eventually(lambda: actor._spawned)

        async def breaks():
            raise ZeroDivisionError

        actor.spawn(breaks(), "breaks")
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(actor.task, 20)


async def test_a_room_says_that_it_lives(kitchen):
    watcher = (await kitchen.ports()).bus
    beats = await watcher.signals(Heartbeat, room="kitchen")
    actor = Kitchen(await kitchen.ports(), instance="7")
    actor.heartbeat_s = 0.01
    task = asyncio.create_task(actor.run())
    async with asyncio.timeout(20):
        beat = await anext(beats)
    actor.stop()
    await task
    assert (beat.body.room, beat.body.instance) == ("kitchen", "7")
    assert beat.body.resident_bytes > 1_000_000


async def test_mail_delivered_too_often_is_given_up_without_being_tried(kitchen, eventually):
    ports = await kitchen.ports()
    inbox = await ports.bus.commands("kitchen", "kitchen", Cook, policy=QUICK)
    await ports.bus.publish("kitchen", Cook("poison"))
    for _ in range(QUICK.max_attempts):  # what rooms do that die over it
        async with asyncio.timeout(20):
            await (await anext(inbox)).hand_back()
    await inbox.aclose()
    async with kitchen() as actor:
        await eventually(lambda: actor.given_up)
    assert actor.tried == []
    assert actor.given_up == ["poison"]
