"""The memory parts can fail like real ones, and what is built on them has to bear it."""

import asyncio
from contextlib import suppress

import msgspec
import pytest

from services.bus import DeliveryPolicy, MemoryBroker, MemoryBus
from services.errors import BusUnavailable, Conflict
from services.ledger import MemoryLedger, NatsLedger
from services.nats_link import EVENTS_STREAM


class Pay(msgspec.Struct, frozen=True, tag="pay"):
    bill: str


class Paid(msgspec.Struct, frozen=True, tag="paid"):
    bill: str


class Notes:
    """A journal that keeps what it is told."""

    def __init__(self):
        self.noted = []

    def note(self, seq, subject, raw):
        self.noted.append((seq, subject, raw))


async def pay(delivery, ledger):
    """A handler as a room writes it: commit by comparison, a lost one means it was done before."""
    with suppress(Conflict):
        await ledger.append("candidate", delivery.command.bill, Paid(delivery.command.bill), 0)
    await delivery.ack()


async def test_a_command_that_is_published_and_delivered_twice_has_one_effect(world):
    bus, ledger = await world.bus(), await world.ledger(Paid)
    policy = DeliveryPolicy(ack_wait_s=1.0)
    inbox = await bus.commands("cashier", "cashier", Pay, policy=policy)
    await bus.publish("cashier", Pay("b1"))
    await bus.publish("cashier", Pay("b1"))
    async with asyncio.timeout(30):
        first = await anext(inbox)
        await ledger.append("candidate", "b1", Paid("b1"), 0)  # and then it dies before the ack
        await world.crash()
        for _ in range(2):
            await pay(await anext(inbox), ledger)
    assert first.command == Pay("b1")
    assert await ledger.head() == 1


async def test_acks_forgotten_in_a_crash_bring_the_mail_back():
    broker = MemoryBroker()
    bus = MemoryBus(broker)
    inbox = await bus.commands("cashier", "cashier", Pay)
    await bus.publish("cashier", Pay("b1"))
    await (await anext(inbox)).ack()
    broker.crash()
    assert (await anext(inbox)).command == Pay("b1")


async def test_mail_can_be_made_to_come_again_and_twice():
    broker = MemoryBroker()
    bus = MemoryBus(broker)
    inbox = await bus.commands("cashier", "cashier", Pay)
    broker.duplicate_publishes()
    await bus.publish("cashier", Pay("b1"))
    assert [(await anext(inbox)).attempt, (await anext(inbox)).attempt] == [1, 1]
    broker.redeliver("cashier")
    assert (await anext(inbox)).attempt == 2


async def test_a_refused_publish_stores_nothing():
    broker = MemoryBroker()
    bus = MemoryBus(broker)
    broker.refuse_publishes()
    with pytest.raises(BusUnavailable):
        await bus.publish("cashier", Pay("b1"))
    assert broker.mail == {}


async def test_a_lost_ack_of_an_append_leaves_the_event_and_a_refused_one_does_not():
    ledger = MemoryLedger(Paid)
    ledger.lose_acks()
    with pytest.raises(BusUnavailable):
        await ledger.append("candidate", "b1", Paid("b1"), 0)
    ledger.refuse_appends()
    with pytest.raises(BusUnavailable):
        await ledger.append("candidate", "b2", Paid("b2"), 0)
    assert await ledger.last("candidate", "b1") == 1
    assert await ledger.last("candidate", "b2") == 0


@pytest.mark.parametrize("kind", ["memory", "nats"])
async def test_a_journal_is_told_of_each_commit_and_of_nothing_else(nats_world, kind):
    notes = Notes()
    if kind == "memory":
        ledger = MemoryLedger(Paid, journal=notes)
    else:
        ledger = NatsLedger(await nats_world.link(), Paid, journal=notes)
    await ledger.append("candidate", "b1", Paid("b1"), 0)
    with pytest.raises(Conflict):
        await ledger.append("candidate", "b1", Paid("b1"), 0)
    assert notes.noted == [(1, "pt.v1.evt.candidate.b1.paid", b'{"type":"paid","bill":"b1"}')]


async def test_an_append_that_is_sent_again_after_a_lost_ack_commits_once(nats_world):
    link = await nats_world.link()
    ledger = NatsLedger(link, Paid)
    publish, lost = link.publish, []

    async def losing_the_first_ack(subject, raw, headers, message_id):
        if not lost:
            lost.append(await publish(subject, raw, headers, message_id))
        return await publish(subject, raw, headers, message_id)

    link.publish = losing_the_first_ack
    seq = await ledger.append("candidate", "b1", Paid("b1"), 0)
    assert seq == lost[0].seq == await ledger.head()


async def test_an_append_that_won_before_its_id_was_forgotten_is_recognised(nats_world):
    link = await nats_world.link()
    ledger = NatsLedger(link, Paid)
    publish = link.publish

    async def after_the_window(subject, raw, headers, message_id):
        """The first try commits; the second one's id is no longer known to the broker."""
        await publish(subject, raw, headers, message_id)
        return await publish(subject, raw, headers, "another-id")

    link.publish = after_the_window
    assert await ledger.append("candidate", "b1", Paid("b1"), 0) == 1
    assert await link.head(EVENTS_STREAM) == 1
