"""A command is answered on all that was stored when it came, folded here yet or not."""

from __future__ import annotations

import asyncio

from protos import events as e
from scheduler.book import Book
from scheduler.snapshot import Snapshots
from services.ledger.memory import MemoryLedger


async def test_who_answers_a_command_waits_for_what_its_sender_may_have_read() -> None:
    ledger = MemoryLedger(e.Event)
    book = Book(ledger, Snapshots(None), snapshot_events=100)
    await ledger.append("engine", "host-0", e.EngineUp("host-0", "cpu", ("slim",)), None)
    answer = asyncio.create_task(book.up_to_date())
    for _ in range(5):
        await asyncio.sleep(0)
    assert book.is_current() is False
    assert not answer.done()
    async for recorded in ledger.read():
        await book.fold(recorded)
    assert (await answer).last_seq == 1
