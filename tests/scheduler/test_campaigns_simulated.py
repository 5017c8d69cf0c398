"""Whole campaigns in one process under a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from protos import events as e
from protos.candidate import Candidate
from protos.messages import (
    AskStatus,
    CampaignStatus,
    OpenCampaign,
    Policy,
    ResumeCampaign,
    StopCampaign,
    SubmitCandidate,
)
from protos.target import Target
from services.clock import VirtualClock, run_virtual
from services.ledger import Recorded
from services.ports import MemoryWorld
from tests.scheduler.simulated_rooms import (
    START,
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


def test_two_independent_winners_end_up_in_one_release() -> None:
    effects = {"a": 0.3, "b": 0.2, "c": -0.1}
    events = play(effects, [knob(name) for name in effects])
    assert releases(events)[-1].knobs == {"threads": 1, "a": 1, "b": 1}
    assert [r.number for r in releases(events)] == [1, 2]
    rebased = [r.event for r in events if isinstance(r.event, e.CandidateRebased)]
    assert any(x.onto is not None for x in rebased)


def test_the_control_arm_is_measured_against_the_start_and_never_promoted() -> None:
    effects = {"a": 0.2, "r": 0.6, "n": 0.0}
    candidates = [knob("a"), knob("n"), knob("r", arm="random", strategy="random")]
    order = opening(policy=Policy(control_share=0.5))
    events = play(effects, candidates, order)
    assert [r.knobs for r in releases(events)] == [{"threads": 1, "a": 1}]
    leases = [r.event.lease for r in events if isinstance(r.event, e.TrialGranted)]
    closing = [lease for lease in leases if lease.purpose == "random_final"]
    assert [lease.side_a.release for lease in closing] == [START.id]
    assert [lease.side_b.candidate for lease in closing] == [candidates[2].id]
    assert [lease.purpose for lease in leases][-2:] == ["final", "random_final"]


def test_arms_get_equal_device_seconds_over_a_whole_campaign() -> None:
    effects = {f"s{i}": 0.02 * (i % 3) - 0.02 for i in range(150)}
    candidates = [knob(name) for name in effects]
    candidates += [knob(f"r{i}", arm="random", strategy="random") for i in range(150)]
    events = play(effects, candidates, opening(240.0, Policy(control_share=0.5)))
    leases = {r.event.lease.trial: r.event.lease for r in events if is_grant(r)}
    spent = {"search": 0.0, "random": 0.0}
    arms = {c.id: c.arm for c in candidates}
    ended = [r.event.verdict for r in events if isinstance(r.event, e.TrialEnded)]
    tried = [verdict for verdict in ended if not leases[verdict.trial].purpose]
    last = next(v for v in reversed(tried) if arms[v.candidate] == "search")
    if last.tier == "cold":
        tried.remove(last)  # so long that no time was left to make up for it
    for verdict in tried:
        spent[arms[verdict.candidate]] += verdict.device_s
    assert spent["search"] > 30.0
    assert abs(spent["search"] - spent["random"]) < 0.1 * spent["search"]


def is_grant(recorded: Recorded) -> bool:
    return isinstance(recorded.event, e.TrialGranted)


def test_the_engine_never_waits_while_there_is_something_to_try() -> None:
    effects = {f"s{i}": 0.0 for i in range(60)}
    events = play(effects, [knob(name) for name in effects])
    ends = [r.time_s for r in events if isinstance(r.event, e.TrialEnded)]
    took = [r.event.verdict.device_s + 0.2 for r in events if isinstance(r.event, e.TrialEnded)]
    gaps = [
        later - earlier - t for earlier, later, t in zip(ends, ends[1:], took[1:], strict=False)
    ]
    assert max(gaps) < 0.01


def test_the_budget_is_kept_with_the_closing_measurement_inside_it() -> None:
    effects = {f"s{i}": 0.3 if i == 7 else 0.0 for i in range(400)}
    events = play(effects, [knob(name) for name in effects], opening(400.0))
    finished = events[-1].event
    assert isinstance(finished, e.CampaignFinished)
    assert finished.reason == "the wall-clock budget is spent"
    assert finished.wall_s <= 401.0
    assert len(releases(events)) == 1


def test_a_candidate_whose_engine_dies_every_time_is_parked_and_the_rest_goes_on() -> None:
    async def main() -> list[Recorded]:
        sim = Simulation({"a": 0.3, "cursed": 0.3}, MemoryWorld(VirtualClock()))
        cursed = knob("cursed")
        sim.host.losses[cursed.id] = 99
        sim.start()
        await sim.tell(opening())
        await sim.until(e.CampaignReady)
        await sim.tell(SubmitCandidate(cursed), SubmitCandidate(knob("a")))
        await sim.until(e.CampaignFinished)
        await sim.end()
        return await sim.events()

    events = run_virtual(main())
    assert len([r for r in events if isinstance(r.event, e.TrialLost)]) == 3
    assert [r.knobs for r in releases(events)] == [{"threads": 1, "a": 1}]


def test_a_zombies_late_result_is_refused() -> None:
    async def main() -> tuple[list[Recorded], list[str]]:
        sim = Simulation({"a": 0.0}, MemoryWorld(VirtualClock()))
        sim.start()
        await sim.tell(opening())
        await sim.until(e.CampaignReady)
        await sim.tell(SubmitCandidate(knob("a")))
        granted = (await sim.until(e.TrialGranted)).event
        # Somebody ends the lease while the host is still at it.
        lost = e.TrialLost("demo", granted.lease.trial, 7, "the lease ran out")
        last = await sim.world.ledger.last("trial", granted.lease.trial)
        await sim.world.ledger.append(
            "trial", granted.lease.trial, msgspec.structs.replace(lost, epoch=last), last
        )
        await sim.until(e.CampaignFinished)
        await sim.end()
        return await sim.events(), sim.host.refused

    events, refused = run_virtual(main())
    assert len(refused) == 1
    assert len(judgements(events)) == 1
    ended = next(r.event for r in events if isinstance(r.event, e.TrialEnded))
    assert ended.epoch == [r.seq for r in events if is_grant(r)][-1]


def test_every_submission_ends_in_exactly_one_event() -> None:
    async def main() -> list[Recorded]:
        sim = Simulation({"a": 0.0}, MemoryWorld(VirtualClock()))
        sim.start()
        await sim.tell(opening())
        await sim.until(e.CampaignReady)
        stale = knob("b", base="r000000000000")
        for candidate in (knob("a"), knob("a"), stale, knob("bad")):
            await sim.tell(SubmitCandidate(candidate))
        await sim.until(e.CampaignFinished)
        await sim.end()
        return await sim.events()

    events = run_virtual(main())
    admitted = [r for r in events if isinstance(r.event, e.CandidateAdmitted)]
    refused = [r.event.reason for r in events if isinstance(r.event, e.CandidateRefused)]
    assert len(admitted) == 2
    assert [reason[:8] for reason in refused] == ["a repeat", "base r00"]
    assert len(judgements(events)) == 1


def test_a_campaign_of_an_unknown_engine_is_refused_with_what_to_do() -> None:
    async def main() -> CampaignStatus:
        sim = Simulation({}, MemoryWorld(VirtualClock()))
        sim.start()
        bad = msgspec.structs.replace(opening(), target=Target("warp", "m"))
        await sim.tell(bad)
        await sim.until(e.CampaignRefused)
        bus = sim.world.ports().bus
        status = await bus.ask("scheduler", AskStatus("demo"), CampaignStatus)
        await sim.end()
        return status

    status = run_virtual(main())
    assert status.state == "refused"
    assert "use one of slim, fake" in status.reason


def test_a_stopped_campaign_can_be_resumed_with_more_budget() -> None:
    async def main() -> tuple[list[Recorded], CampaignStatus]:
        sim = Simulation({"a": 0.3}, MemoryWorld(VirtualClock()))
        sim.start()
        await sim.tell(opening(300.0))
        await sim.until(e.CampaignReady)
        await sim.tell(StopCampaign("demo", "by hand"))
        await sim.until(e.CampaignPaused)
        bus = sim.world.ports().bus
        paused = await bus.ask("scheduler", AskStatus("demo"), CampaignStatus)
        await sim.world.clock.sleep(10_000.0)
        await sim.tell(ResumeCampaign("demo", extra_wall_s=60.0))
        await sim.until(e.CampaignResumed)
        await sim.tell(SubmitCandidate(knob("a")))
        await sim.until(e.CampaignFinished)
        await sim.end()
        return await sim.events(), paused

    events, paused = run_virtual(main())
    assert paused.state == "paused"
    resumed = next(r.event for r in events if isinstance(r.event, e.CampaignResumed))
    assert resumed.budget_s == 360.0
    assert resumed.wall_s < 10.0
    assert len(releases(events)) == 1
