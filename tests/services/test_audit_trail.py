"""Journal against ledger: each kind of difference is found, and the record is named."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from journaled_campaign import write
from protos import codec
from protos import events as e
from recorded_campaign import finished
from services.audit_trail import Trail
from services.ledger import Recorded
from services.ports import MemoryWorld
from services.promotions import Entry, PromotionJournal


def make() -> tuple[list[Entry], list[Recorded]]:
    async def main() -> tuple[list[Entry], list[Recorded]]:
        world, journal = MemoryWorld(), PromotionJournal(None)
        await write(finished(), world.ports(), journal)
        return journal.entries, [recorded async for recorded in world.ledger.read()]

    return asyncio.run(main())


ENTRIES, EVENTS = make()
RELEASES = [at for at, r in enumerate(EVENTS) if isinstance(r.event, e.ReleasePromoted)]


def said(entries: list[Entry], events: list[Recorded], running: bool = False) -> list[str]:
    trail = Trail(entries, running)
    for recorded in events:
        trail.take(recorded)
    return [f"{fault.entry}: {fault.what}" for fault in trail.faults()]


def changed(at: int, change: Callable[[e.Event], e.Event]) -> list[Recorded]:
    """The ledger with one event written over."""
    old = EVENTS[at]
    event = change(old.event)
    fresh = Recorded(
        old.seq, old.time_s, old.entity, old.id, event, old.trace_id, codec.encode(event)
    )
    return [*EVENTS[:at], fresh, *EVENTS[at + 1 :]]


def test_a_journal_and_its_ledger_have_no_fault_and_cover_all_but_the_last_event():
    assert said(ENTRIES, EVENTS) == []
    assert [entry.kind for entry in ENTRIES] == ["release_promoted"] * 2 + ["campaign_finished"]
    assert ENTRIES[-1].ledger_upto == len(EVENTS) - 1


@pytest.mark.parametrize("place", range(len(ENTRIES)))
def test_a_release_or_an_end_without_a_record_is_found(place):
    lines = said(ENTRIES[:place] + ENTRIES[place + 1 :], EVENTS)

    event = EVENTS[RELEASES[place]] if place < len(RELEASES) else EVENTS[-1]
    assert any(f"event {event.seq}, is in the ledger, the journal has no" in s for s in lines)


@pytest.mark.parametrize("place", range(len(RELEASES)))
def test_a_record_whose_release_the_ledger_lacks_is_named(place):
    at = RELEASES[place]

    lines = said(ENTRIES, EVENTS[:at] + EVENTS[at + 1 :])

    named = [line for line in lines if "which the ledger doesn't have" in line]
    assert [line.split(":")[0] for line in named] == [str(place + 1)]


@pytest.mark.parametrize("at", range(0, len(EVENTS) - 1, 7))
def test_any_event_that_is_missing_is_found_in_the_record_that_covers_it(at):
    lines = said(ENTRIES, EVENTS[:at] + EVENTS[at + 1 :])

    covering = next(entry for entry in ENTRIES if EVENTS[at].seq <= entry.ledger_upto)
    assert any(line.startswith(f"{covering.entry}: covers the ledger's events") for line in lines)


def test_a_withdrawn_promise_asks_for_nothing():
    withdrawn = msgspec.structs.replace(ENTRIES[-1], kind="withdrawn", entry=4)
    empty = msgspec.structs.replace(
        withdrawn,
        ledger_from=ENTRIES[-1].ledger_upto + 1,
        ledger="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    )

    assert said([*ENTRIES, empty], EVENTS[:-1]) == []
