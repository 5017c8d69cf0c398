"""The scheduler ends without a word at every event of a campaign, and another takes over."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from protos import events as e
from protos.messages import SubmitCandidate
from scheduler.snapshot import Snapshots
from services.clock import VirtualClock, run_virtual
from services.ledger import Recorded
from services.ports import MemoryWorld
from tests.scheduler.simulated_rooms import Simulation, judgements, knob, opening, releases

EFFECTS = {"a": 0.3, "b": 0.15, "c": -0.2, "d": 0.0}
DOWN_S = 500.0


def play(kill_at: int | None, snapshots: Snapshots | None = None) -> list[Recorded]:
    """A whole campaign; the scheduler is gone for DOWN_S seconds after `kill_at` events."""

    async def main() -> list[Recorded]:
        sim = Simulation(
            EFFECTS, MemoryWorld(VirtualClock()), snapshots=snapshots or Snapshots(None)
        )
        sim.start()
        await sim.tell(opening(2000.0))
        feeding = asyncio.create_task(feed(sim))
        if kill_at is not None:
            await sim.until(object, kill_at)
            await sim.kill_scheduler()
            await sim.world.clock.sleep(DOWN_S)
            sim.start_scheduler()
        await feeding
        await sim.until(e.CampaignFinished)
        await sim.end()
        return await sim.events()

    return run_virtual(main())


async def feed(sim: Simulation) -> None:
    await sim.until(e.CampaignReady)
    await sim.tell(*(SubmitCandidate(knob(name)) for name in EFFECTS))


UNDISTURBED = play(None)


@pytest.mark.parametrize("kill_at", range(2, len(UNDISTURBED) - 1, 2))
def test_whenever_the_scheduler_dies_the_same_trials_are_judged_once(
    kill_at: int, tmp_path: Path
) -> None:
    # Every second run also starts from a snapshot.
    snapshots = Snapshots(tmp_path / "s.msgpack") if kill_at % 4 else Snapshots(None)
    events = play(kill_at, snapshots)
    assert max(Counter(trial for trial, _ in judgements(events)).values()) == 1
    assert set(judgements(events)) == set(judgements(UNDISTURBED))
    assert releases(events)[-1].knobs == releases(UNDISTURBED)[-1].knobs
    finished, before = events[-1].event, UNDISTURBED[-1].event
    assert isinstance(finished, e.CampaignFinished)
    assert isinstance(before, e.CampaignFinished)
    assert finished.wall_s == pytest.approx(before.wall_s, abs=60.0)  # never the DOWN_S
    assert finished.device_s == pytest.approx(before.device_s)


@pytest.mark.parametrize("every", [3, 5, 8])
def test_lost_confirmations_write_nothing_twice(every: int) -> None:
    async def main() -> list[Recorded]:
        sim = Simulation(EFFECTS, MemoryWorld(VirtualClock()))
        sim.start()
        await sim.tell(opening(2000.0))
        feeding = asyncio.create_task(feed(sim))
        failing = asyncio.create_task(fail(sim))
        await feeding
        await sim.until(e.CampaignFinished)
        failing.cancel()
        await sim.end()
        return await sim.events()

    async def fail(sim: Simulation) -> None:
        """After every few events the next append's confirmation is lost, or it is refused."""
        async for recorded in sim.world.ledger.follow():
            if recorded.seq % every == 0:
                sim.world.ledger.lose_acks()
            if recorded.seq % (every + 6) == 0:
                sim.world.ledger.refuse_appends()

    events = run_virtual(main())
    admitted = [r.id for r in events if isinstance(r.event, e.CandidateAdmitted)]
    assert len(admitted) == len(set(admitted))
    granted = Counter(r.id for r in events if isinstance(r.event, e.TrialGranted))
    lost = Counter(r.id for r in events if isinstance(r.event, e.TrialLost))
    assert all(count <= 1 + lost[id] for id, count in granted.items())
    assert max(Counter(trial for trial, _ in judgements(events)).values()) == 1
    assert releases(events)[-1].knobs == releases(UNDISTURBED)[-1].knobs
