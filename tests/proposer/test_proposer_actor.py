"""The room on the memory bus and ledger: windows, arms, restarts, and when it stays silent."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proposer.actor import Proposer, built_in
from proposer.settings import ProposerSettings
from proposer.strategies import Context, Outcome, Proposal
from protos import events as e
from protos.candidate import Candidate, Check
from protos.messages import OpenCampaign, Policy, SubmitCandidate
from protos.release import EngineFacts, Release
from protos.target import STRATEGIES, Budget, Objective, Target, Workload
from protos.trial import Interval, Verdict
from services.ports import MemoryWorld, Ports

CAMPAIGN = "k1"
POLICY = Policy(control_share=0.5)


class Counting:
    """Proposes one knob value after another; remembers what it was told."""

    def __init__(self, name: str, arm: str = "search", last: int = 1000) -> None:
        self.name, self.arm, self._last = name, arm, last
        self.told: list[Outcome] = []
        self.bases: list[str] = []

    def propose(self, context: Context) -> Proposal | None:
        taken = {
            int(c.candidate.knobs["prefill_chunk"])
            for c in context.history
            if c.candidate.strategy == self.name
        }
        number = 16 + len(context.known) + len(taken)
        if number > 16 + self._last:
            return None
        self.bases.append(context.base.id)
        return Proposal(f"{self.name} {number}", "why", knobs={"prefill_chunk": number})

    def learn(self, outcome: Outcome) -> None:
        self.told.append(outcome)


class World:
    """A memory world with a scheduler's inbox, where the room under test runs."""

    def __init__(self, facts: EngineFacts, start: Release, slim: dict[str, str]) -> None:
        self.memory = MemoryWorld()
        self.ports: Ports = self.memory.ports()
        self.facts, self.start = facts, start
        for text in slim.values():
            self.ports.blobs.put(text.encode())
        self.mail: asyncio.Queue[Candidate] = asyncio.Queue()

    async def tell(self, event: e.Event, entity: str = "campaign", id: str = CAMPAIGN) -> None:
        await self.ports.ledger.append(entity, id, event, None)

    async def open(self, policy: Policy = POLICY) -> None:
        order = (Target("slim", "smollm2"), Workload("single"), Objective("output_tok_s"))
        await self.tell(e.CampaignOpened(OpenCampaign(CAMPAIGN, *order, Budget(60.0), policy)))
        await self.tell(e.CampaignReady(CAMPAIGN, "host", self.facts, self.start, 1.0))

    async def admit(self, candidate: Candidate) -> None:
        await self.tell(e.CandidateAdmitted(candidate), "candidate", candidate.id)

    async def judge(self, candidate: Candidate, word: str, ratio: float = 1.0) -> None:
        interval = Interval("output_tok_s", ratio, None, None, 4)
        verdict = Verdict(f"t{candidate.id}", candidate.id, "fast", word, "", "0" * 64, interval)  # type: ignore[arg-type]
        await self.tell(e.TrialEnded(CAMPAIGN, 1, verdict), "trial", verdict.trial)

    async def sent(self, count: int) -> list[Candidate]:
        async with asyncio.timeout(10.0):
            return [await self.mail.get() for _ in range(count)]

    async def settled(self, room: Proposer) -> None:
        """Wait until the room has seen the whole ledger and has nothing more to send."""
        async with asyncio.timeout(10.0):
            head = await self.ports.ledger.head()
            while room.vitals()["seen"] != head or room.vitals()["busy"]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def room(self, *strategies: Counting, window: int = 2) -> AsyncIterator[Proposer]:
        settings = ProposerSettings(window=window, arm_window=3)
        room = Proposer(self.memory.ports(), settings, lambda ports: [*strategies])
        inbox = await self.ports.bus.commands("scheduler", "scheduler", SubmitCandidate)
        reader = asyncio.create_task(self._read(inbox))
        running = asyncio.create_task(room.run())
        try:
            yield room
        finally:
            room.stop()
            await running
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
            await inbox.aclose()

    async def _read(self, inbox) -> None:  # type: ignore[no-untyped-def]
        async for delivery in inbox:
            await self.mail.put(delivery.command.candidate)
            await delivery.ack()


@pytest.fixture
def world(facts: EngineFacts, start: Release, slim: dict[str, str]) -> World:
    return World(facts, start, slim)


async def test_windows_are_filled_and_then_nothing_more_is_sent(world: World) -> None:
    await world.open()
    async with world.room(Counting("a"), Counting("b"), Counting("r", "random")) as room:
        sent = await world.sent(5)
        await world.settled(room)
        assert world.mail.empty()
    # Two a strategy, three an arm.
    assert sorted(c.strategy for c in sent) == ["a", "a", "b", "r", "r"]
    assert {c.arm for c in sent if c.strategy == "r"} == {"random"}
    assert all(c.base == world.start.id and c.cost.wall_s >= 0.0 for c in sent)


async def test_a_verdict_makes_room_and_is_learnt_by_its_own_strategy(world: World) -> None:
    a, b = Counting("a"), Counting("b")
    await world.open()
    async with world.room(a, b):
        sent = await world.sent(3)
        first = next(c for c in sent if c.strategy == "a")
        await world.admit(first)
        await world.judge(first, "faster", 1.2)
        (more,) = await world.sent(1)
        assert more.id not in {c.id for c in sent}
    assert [(o.tried.word, o.tried.ratio, o.tier) for o in a.told] == [("faster", 1.2, "fast")]
    assert b.told == []


async def test_a_failed_check_makes_room(world: World) -> None:
    a = Counting("a")
    await world.open()
    async with world.room(a):
        (first, _) = await world.sent(2)
        await world.admit(first)
        check = e.CandidateChecked(CAMPAIGN, Check(first.id, False, "it doesn't compile"))
        await world.tell(check, "candidate", first.id)
        await world.sent(1)
    assert [(o.tried.word, o.tried.reason) for o in a.told] == [("invalid", "it doesn't compile")]


async def test_nothing_is_sent_before_the_target_is_ready_nor_after_the_end(world: World) -> None:
    order = (Target("slim", "smollm2"), Workload("single"), Objective("output_tok_s"))
    async with world.room(Counting("a")) as room:
        await world.tell(e.CampaignOpened(OpenCampaign(CAMPAIGN, *order, Budget(60.0))))
        await world.settled(room)
        assert world.mail.empty()
        await world.tell(e.CampaignReady(CAMPAIGN, "host", world.facts, world.start, 1.0))
        first, _ = await world.sent(2)
        await world.tell(e.CampaignPaused(CAMPAIGN, "stopped", 5.0))
        await world.admit(first)
        await world.judge(first, "no_gain")
        await world.settled(room)
        assert world.mail.empty()
        assert room.room == "proposer"
        await world.tell(e.CampaignResumed(CAMPAIGN, 5.0, 60.0))
        await world.sent(1)


async def test_a_refusal_that_is_no_repeat_silences_the_strategy(world: World) -> None:
    a = Counting("a")
    await world.open()
    async with world.room(a) as room:
        first, _ = await world.sent(2)
        refused = e.CandidateRefused(first, "the budget is spent")
        await world.tell(refused, "candidate", first.id)
        await world.settled(room)
        assert world.mail.empty()
    assert [o.tried.word for o in a.told] == ["refused"]


async def test_search_follows_a_promotion_and_the_control_arm_stays(world: World) -> None:
    a, r = Counting("a"), Counting("r", "random")
    await world.open()
    async with world.room(a, r):
        sent = await world.sent(4)
        winner = next(c for c in sent if c.strategy == "a")
        release = Release(CAMPAIGN, 1, world.start.files, winner.knobs, parent=world.start.id)
        await world.tell(e.ReleasePromoted(release, ("t1",)), "release", release.id)
        control = next(c for c in sent if c.strategy == "r")
        await world.judge(control, "no_gain")
        more = await world.sent(3)
    assert {c.base for c in more if c.arm == "search"} == {release.id}
    assert {c.base for c in more if c.arm == "random"} == {world.start.id}


async def test_a_restarted_room_repeats_nothing_and_tells_strategies_what_was(
    world: World,
) -> None:
    await world.open()
    async with world.room(Counting("a")) as room:
        before = await world.sent(2)
    for candidate in before:
        await world.admit(candidate)
    await world.judge(before[0], "slower", 0.8)
    again = Counting("a")
    async with world.room(again) as room:
        (more,) = await world.sent(1)
        await world.settled(room)
        assert world.mail.empty()  # one of the first two still waits for its verdict
    assert more.id not in {c.id for c in before}
    assert [o.tried.candidate.id for o in again.told] == [before[0].id]


async def test_the_policy_chooses_arms_and_strategies(world: World) -> None:
    await world.open(Policy(control_share=0.0, strategies=("b", "r")))
    async with world.room(Counting("a"), Counting("b"), Counting("r", "random")) as room:
        sent = await world.sent(2)
        await world.settled(room)
        assert world.mail.empty()
    assert {c.strategy for c in sent} == {"b"}


async def test_files_travel_as_blobs(world: World) -> None:
    class Patch(Counting):
        def propose(self, context: Context) -> Proposal | None:
            text = context.sources["slim/layers.py"] + f"# {len(context.known)}\n"
            return Proposal("patch", "why", files={"slim/layers.py": text})

    await world.open()
    async with world.room(Patch("p")):
        (first, _) = await world.sent(2)
    digest = first.files["slim/layers.py"]
    assert digest is not None
    assert world.ports.blobs.get(digest).decode().endswith("# 0\n")


def test_the_strategies_that_a_person_may_name_are_those_that_come_along() -> None:
    named = {one.name for one in built_in(MemoryWorld().ports()) if one.arm != "canary"}
    assert named == set(STRATEGIES)
