"""The engine host on a bus: it prepares, measures, hands evidence on, and keeps to its lease."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine_host import processes
from engine_host.actor import EngineHost
from engine_host.settings import EngineHostSettings
from protos.codec import decode
from protos.events import (
    CampaignOpened,
    CampaignReady,
    CampaignRefused,
    EngineRebuilt,
    EngineReproved,
    EngineUp,
    TrialGranted,
    TrialLost,
    TrialVoided,
)
from protos.messages import (
    Activity,
    CommitSeed,
    JudgeTrial,
    OpenCampaign,
    PrepareTarget,
    RevealScript,
    RunTrial,
    ScriptRevealed,
    SeedCommitment,
)
from protos.target import Budget, Objective, Target, Workload
from protos.trial import (
    Evidence,
    Lease,
    PairScript,
    Plan,
    Request,
    Script,
    Side,
    StopRule,
)
from services.actor import Actor
from services.bus import Delivery
from services.errors import Refused
from services.hooks import on_ask, on_command
from services.ports import MemoryWorld, Ports

FAKE = Target("fake", "anything")
SETTINGS = EngineHostSettings(waited_share=2.0, steal_share=1e9, reprove_idle_s=0.2)
PLAN = Plan("fast", StopRule(min_units=2, max_units=2, mode="fixed"))


class StandInEvaluator(Actor):
    """Commits and reveals like the evaluator; keeps what it is sent to judge."""

    room = "evaluator"

    def __init__(self, ports: Ports) -> None:
        super().__init__(ports)
        self.judged: asyncio.Queue[JudgeTrial] = asyncio.Queue()
        self.refuse = ""

    @on_ask(CommitSeed)
    async def commit(self, ask: CommitSeed) -> SeedCommitment:
        return SeedCommitment(ask.trial, "c" * 64)

    @on_ask(RevealScript)
    async def reveal(self, ask: RevealScript) -> ScriptRevealed:
        if self.refuse:
            raise Refused(self.refuse)
        rng = random.Random(5)
        pairs = tuple(
            PairScript("A", (Request(n, tuple(rng.randrange(1, 500) for _ in range(6)), 4),))
            for n in range(4)
        )
        script = Script(ask.lease.trial, "seed", pairs)
        return ScriptRevealed(ask.lease.trial, self.blobs.put(msgspec.json.encode(script)))

    @on_command(JudgeTrial)
    async def judge(self, command: JudgeTrial, delivery: Delivery) -> None:
        await self.judged.put(command)


@dataclass
class Stage:
    """Both actors running on one memory bus."""

    ports: Ports
    evaluator: StandInEvaluator

    async def event(self, kind: type[Any], from_seq: int = 1) -> Any:
        """The first event of a kind, waited for."""
        async for recorded in self.ports.ledger.follow(from_seq):
            if isinstance(recorded.event, kind):
                return recorded.event
        raise AssertionError("the ledger ended")

    async def ready(self) -> CampaignReady:
        opening = OpenCampaign(
            "camp", FAKE, Workload("single"), Objective("output_tok_s"), Budget(60.0)
        )
        await self.ports.ledger.append("campaign", "camp", CampaignOpened(opening), 0)
        order = PrepareTarget("camp", FAKE, Workload("single"))
        await self.ports.bus.publish("engine_host", order, key="host-0")
        found: CampaignReady = await self.event(CampaignReady)
        return found

    async def grant(self, lease: Lease) -> Lease:
        epoch = await self.ports.ledger.append("trial", lease.trial, TrialGranted(lease), None)
        return msgspec.structs.replace(lease, epoch=epoch)

    async def send(self, lease: Lease) -> None:
        await self.ports.bus.publish("engine_host", RunTrial(lease), key="host-0")

    async def evidence(self) -> Evidence:
        judge = await self.evaluator.judged.get()
        return decode(self.ports.blobs.get(judge.evidence), Evidence)


def lease_of(ready: CampaignReady, trial: str, **change: Any) -> Lease:
    start = Side(ready.start.id, ready.start.files, {}, {})
    side_b = msgspec.structs.replace(start, candidate="c1", **change)
    return Lease(
        trial,
        "camp",
        "host-0",
        1,
        "fast",
        start,
        side_b,
        FAKE,
        Workload("single"),
        Objective("output_tok_s"),
        PLAN,
    )


@asynccontextmanager
async def a_stage(home: Path) -> AsyncIterator[Stage]:
    world = MemoryWorld()
    ports = world.ports()
    host = EngineHost(world.ports(), "host-0", home, SETTINGS)
    evaluator = StandInEvaluator(world.ports())
    running = [asyncio.create_task(actor.run()) for actor in (host, evaluator)]
    try:
        yield Stage(ports, evaluator)
    finally:
        host.stop()
        evaluator.stop()
        await asyncio.gather(*running)


@pytest.fixture
async def stage(home: Path) -> AsyncIterator[Stage]:
    async with a_stage(home) as made:
        yield made


async def test_a_host_says_that_it_is_there_and_what_it_can_run(stage: Stage):
    up = await stage.event(EngineUp)
    assert (up.host, up.device_class) == ("host-0", "cpu")
    assert "fake" in up.engines


async def test_preparing_a_target_ends_in_a_ready_campaign_with_its_facts(stage: Stage):
    ready = await stage.ready()
    assert ready.start.number == 0
    assert ready.start.files == ready.facts.files
    assert ready.start.files["fake/model.py"] in {*ready.facts.files.values()}
    assert "rounds" in ready.facts.space
    assert (await stage.event(EngineRebuilt)).reason == "start"


async def test_an_unknown_model_ends_in_one_line_that_refuses_the_campaign(stage: Stage):
    target = Target("slim", "no-such-model")
    order = PrepareTarget("camp", target, Workload("single"))
    await stage.ports.bus.publish("engine_host", order, key="host-0")
    refused = await stage.event(CampaignRefused)
    assert "no-such-model" in refused.reason
    assert "\n" not in refused.reason


async def test_a_lease_ends_in_evidence_at_the_evaluator(stage: Stage):
    ready = await stage.ready()
    lease = await stage.grant(lease_of(ready, "t1"))
    await stage.send(lease)
    evidence = await stage.evidence()
    assert (evidence.trial, evidence.epoch, evidence.failure) == ("t1", lease.epoch, None)
    assert len(evidence.blocks) == 4
    assert evidence.lease == lease


async def test_a_lower_epoch_than_the_trials_last_is_refused(stage: Stage):
    ready = await stage.ready()
    old = await stage.grant(lease_of(ready, "t1"))
    new = await stage.grant(lease_of(ready, "t1"))
    for lease in (new, old, await stage.grant(lease_of(ready, "t2"))):
        await stage.send(lease)
    epochs = [(await stage.evidence()).epoch for _ in range(2)]
    assert epochs[0] == new.epoch
    assert old.epoch not in epochs


async def test_mail_that_comes_twice_is_judged_once(stage: Stage):
    ready = await stage.ready()
    lease = await stage.grant(lease_of(ready, "t1"))
    await stage.send(lease)
    await stage.send(lease)
    await stage.send(await stage.grant(lease_of(ready, "t2")))
    assert [(await stage.evidence()).trial for _ in range(2)] == ["t1", "t2"]


async def test_a_lease_of_a_campaign_that_was_not_prepared_here_is_lost_not_judged(stage: Stage):
    ready = await stage.ready()
    lease = msgspec.structs.replace(lease_of(ready, "t1"), campaign="other")
    await stage.send(await stage.grant(lease))
    lost = await stage.event(TrialLost)
    assert lost.trial == "t1"
    assert "not prepared" in lost.reason


async def test_a_script_that_is_refused_loses_the_trial_and_leaves_the_host_working(stage: Stage):
    ready = await stage.ready()
    stage.evaluator.refuse = "the workload can't be made"
    await stage.send(await stage.grant(lease_of(ready, "t1")))
    assert "can't be made" in (await stage.event(TrialLost)).reason
    stage.evaluator.refuse = ""
    await stage.send(await stage.grant(lease_of(ready, "t2")))
    assert (await stage.evidence()).trial == "t2"


async def test_an_idle_host_proves_its_engines_again(stage: Stage):
    ready = await stage.ready()
    await stage.send(await stage.grant(lease_of(ready, "t1")))
    await stage.evidence()
    proved = await stage.event(EngineReproved)
    assert proved.ok
    assert proved.release == ready.start.id


async def test_an_engine_that_fails_its_proof_voids_the_trials_since_the_last(tmp_path: Path):
    async with a_stage(tmp_path) as stage:
        ready = await stage.ready()
        await stage.send(await stage.grant(lease_of(ready, "t1")))
        await stage.evidence()
        assert (await stage.event(EngineReproved)).ok
        head = await stage.ports.ledger.head()
        await stage.send(await stage.grant(lease_of(ready, "t2")))
        await stage.evidence()
        (tree,) = (tmp_path / "trees").iterdir()
        (tree / "fake" / "model.py").write_text("# changed\n")
        proved = await stage.event(EngineReproved, head + 1)
        while proved.ok:  # proved once more before the change was made
            head += 1
            proved = await stage.event(EngineReproved, head + 1)
        voided = await stage.event(TrialVoided)
    assert "tree" in proved.detail
    assert voided.trial in ("t1", "t2")


async def test_a_host_that_is_stopped_in_mid_trial_loses_it_and_leaves_no_engine(tmp_path: Path):
    slow = Plan("fast", StopRule(min_units=24, max_units=24, mode="fixed"))
    async with a_stage(tmp_path) as stage:
        ready = await stage.ready()
        heavy = msgspec.structs.replace(lease_of(ready, "t1", knobs={"rounds": 400_000}), plan=slow)
        await stage.send(await stage.grant(heavy))
        signals = await stage.ports.bus.signals(Activity, room="engine_host")
        async for signal in signals:
            if signal.body.doing == "timing":
                break
        await signals.aclose()
        engines = processes.tree(os.getpid())
        assert len(engines) > 4
    assert not [p for p in engines if p != os.getpid() and processes.alive(p)]
