"""Whole campaigns in one process under a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protos import events as e
from protos.candidate import Candidate
from protos.messages import OpenCampaign, SubmitCandidate
from services.clock import VirtualClock, run_virtual
from services.ledger import Recorded
from services.ports import MemoryWorld
from tests.scheduler.simulated_rooms import (
    Simulation,
    judgements,
    knob,
    opening,
    releases,
)


def play(
    effects: Mapping[str, float], candidates: Sequence[Candidate], order: OpenCampaign | None = None
) -> list[Recorded]:
    """The ledger of a campaign that gets all candidates as soon as it is ready."""

    async def main() -> list[Recorded]:
        sim = Simulation(effects, MemoryWorld(VirtualClock()))
        sim.start()
        await sim.tell(order or opening())
        await sim.until(e.CampaignReady)
        await sim.tell(*(SubmitCandidate(c) for c in candidates))
        await sim.until(e.CampaignFinished)
        await sim.end()
        return await sim.events()

    return run_virtual(main())


def test_a_known_faster_patch_is_promoted_and_a_slower_and_a_null_one_are_not() -> None:
    effects = {"fast": 0.25, "slow": -0.2, "null": 0.0}
    events = play(effects, [knob(name) for name in effects])
    promoted = releases(events)
    assert [r.number for r in promoted] == [1]
    assert promoted[0].knobs == {"threads": 1, "fast": 1}
    assert len(promoted[0].evidence) == 3
    final = [
        r.event.verdict
        for r in events
        if isinstance(r.event, e.TrialEnded) and r.event.verdict.candidate is None
    ]
    assert [v.word for v in final] == ["faster"]
    assert len(judgements(events)) == len(dict(judgements(events)))
