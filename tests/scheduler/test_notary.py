"""The scheduler's promises: on disk before the release is published, and kept or withdrawn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protos import events as e
from protos.messages import SubmitCandidate
from services.audit_trail import Trail
from services.clock import VirtualClock, run_virtual
from services.errors import TroubleError
from services.ledger import Recorded
from services.ports import MemoryWorld
from services.promotions import Entry, PromotionJournal, read_chain
from tests.scheduler.simulated_rooms import Simulation, knob, opening, releases

EFFECTS = {"a": 0.3, "b": 0.15, "c": -0.2}


class Watching(PromotionJournal):
    """Notes what the ledger held when each line was written."""

    def __init__(self, path: Path | None, world: MemoryWorld) -> None:
        super().__init__(path)
        self.world, self.heads = world, list[int]()
        self.full = 0

    def append(self, entry: Entry) -> None:
        if self.full:
            self.full -= 1
            raise TroubleError("the disk is full (planned)")
        self.heads.append(len(self.world.ledger._log))
        super().append(entry)


def play(path: Path | None, disturb: str = "") -> tuple[list[Recorded], Watching]:
    async def main() -> tuple[list[Recorded], Watching]:
        world = MemoryWorld(VirtualClock())
        journal = Watching(path, world)
        sim = Simulation(EFFECTS, world, journal=journal)
        journal.full = 3 if disturb == "full disk" else 0
        sim.start()
        await sim.tell(opening(900.0))
        await sim.until(e.CampaignReady)
        await sim.tell(*(SubmitCandidate(knob(name)) for name in EFFECTS))
        if disturb == "lost acks":
            await sim.until(e.TrialEnded)
            world.ledger.lose_acks(6)
        await sim.until(e.CampaignFinished)
        await sim.end()
        return await sim.events(), journal

    return run_virtual(main())


def faults(events: list[Recorded], journal: PromotionJournal) -> list[str]:
    trail = Trail(journal.entries)
    for recorded in events:
        trail.take(recorded)
    return [fault.what for fault in trail.faults()]


def test_each_release_and_the_end_are_in_the_journal_before_they_are_in_the_ledger(tmp_path):
    path = tmp_path / "promotions.journal"
    events, journal = play(path)

    entries, chain = read_chain(path.read_bytes())
    assert chain == []
    assert entries == journal.entries
    assert faults(events, journal) == []
    assert len(entries) == len(releases(events)) + 2  # the start, and the end
    published = [
        r.seq for r in events if isinstance(r.event, e.ReleasePromoted | e.CampaignFinished)
    ]
    assert all(head < seq for head, seq in zip(journal.heads, published, strict=True))
    for entry in entries:
        expected = 3 if entry.release and entry.id != "demo-0" else 0
        assert len(entry.trials) == expected


@pytest.mark.parametrize("disturb", ["full disk", "lost acks"])
def test_trouble_delays_a_promotion_and_never_doubles_its_record(disturb):
    events, journal = play(None, disturb)

    assert faults(events, journal) == []
    assert len(releases(events)) >= 1
    assert [entry.kind for entry in journal.entries].count("withdrawn") == 0


@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_scheduler_that_dies_at_a_promise_leaves_one_that_is_kept_or_withdrawn(ends):
    """It dies between the journal and the ledger, or right after both; another takes over."""

    class Dying(Watching):
        died: asyncio.Event

        def append(self, entry: Entry) -> None:
            super().append(entry)
            if entry.id == "demo-1" and not self.died.is_set():
                self.died.set()
                self.world.ledger.refuse_appends(int(ends == "before"))

    async def main() -> tuple[list[Recorded], PromotionJournal]:
        world = MemoryWorld(VirtualClock())
        journal = Dying(None, world)
        journal.died = asyncio.Event()
        sim = Simulation(EFFECTS, world, journal=journal)
        sim.start()
        await sim.tell(opening(900.0))
        await sim.until(e.CampaignReady)
        await sim.tell(*(SubmitCandidate(knob(name)) for name in EFFECTS))
        await journal.died.wait()
        await sim.kill_scheduler()
        sim.start_scheduler()
        await sim.until(e.CampaignFinished)
        await sim.end()
        return await sim.events(), journal

    events, journal = run_virtual(main())
    assert faults(events, journal) == []
    assert len(releases(events)) >= 1
    withdrawn = [entry for entry in journal.entries if entry.kind == "withdrawn"]
    assert len(withdrawn) == (ends == "before")
