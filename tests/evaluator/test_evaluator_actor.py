"""The evaluator on the bus: every command ends in one event, and a late result changes nothing."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evaluator.actor import Evaluator
from evaluator.recompute import recompute
from protos.candidate import Build, Candidate
from protos.events import (
    CampaignReady,
    CandidateAdmitted,
    CandidateChecked,
    TrialEnded,
    TrialGranted,
    TrialLost,
)
from protos.messages import (
    CheckCandidate,
    CommitSeed,
    Heartbeat,
    JudgeTrial,
    RevealScript,
    ScriptRevealed,
    SeedCommitment,
)
from protos.release import EngineFacts, Release
from protos.target import Workload
from protos.trial import Evidence, Lease, Script
from services.broker import Broker
from services.bus import DeliveryPolicy
from services.errors import AskRefused, NoAnswer
from services.ledger import Recorded
from services.ports import MemoryWorld, Ports, open_ports
from services.settings import Settings
from tests.evaluator.made_trials import MAX_CONTEXT, MadeHost, make_lease

LIMIT_S = 20.0


class Stage:
    """An evaluator that runs, and the ports of somebody who talks to it."""

    def __init__(self, ports: Ports, evaluator: Evaluator) -> None:
        self.ports = ports
        self.evaluator = evaluator

    async def grant(self, lease: Lease) -> Lease:
        """Write the grant as the scheduler does, and return the lease as a host gets it."""
        last = await self.ports.ledger.last("trial", lease.trial)
        granted = TrialGranted(msgspec.structs.replace(lease, epoch=0))
        epoch = await self.ports.ledger.append("trial", lease.trial, granted, last)
        return msgspec.structs.replace(lease, epoch=epoch)

    async def reveal(self, lease: Lease) -> tuple[str, Script]:
        ask = RevealScript(lease, None, MAX_CONTEXT)
        answer = await self.ports.bus.ask("evaluator", ask, ScriptRevealed)
        blob = self.ports.blobs.get(answer.script)
        return answer.script, msgspec.json.decode(blob, type=Script)

    async def measured(self, granted: Lease, effect: float = 0.4, **changes: Any) -> str:
        """Run a made-up host on a granted lease; the digest of its evidence."""
        digest, script = await self.reveal(granted)
        changes = {"script": digest, **changes}
        evidence = MadeHost(effect=effect, changes=changes).run(granted, script)
        return self.ports.blobs.put(msgspec.json.encode(evidence))

    async def judge(self, lease: Lease, evidence: str) -> None:
        command = JudgeTrial(lease.trial, lease.epoch, evidence)
        await self.ports.bus.publish("evaluator", command)

    async def event(self, kind: type, count: int = 1) -> Recorded:
        """The `count`-th event of a kind; waits for it."""
        async with asyncio.timeout(LIMIT_S):
            async for recorded in self.ports.ledger.follow():
                if isinstance(recorded.event, kind):
                    count -= 1
                    if count == 0:
                        return recorded
        raise AssertionError("the ledger ended")

    async def count(self, kind: type) -> int:
        return len([r async for r in self.ports.ledger.read() if isinstance(r.event, kind)])


async def wait_until_answering(ports: Ports) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                await ports.bus.ask("evaluator", CommitSeed("t0", 1), SeedCommitment)
                return
            except NoAnswer:
                await asyncio.sleep(0)


@pytest.fixture(params=["memory", "nats"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    if request.param == "memory":
        world = MemoryWorld()
        async for made in _run(world.ports(), world.ports(), tmp_path / "home"):
            yield made
        return
    broker = Broker(tmp_path / "nats")
    await broker.start()
    settings = Settings(nats_url=broker.url, run_dir=str(tmp_path))
    async with open_ports(settings, "test") as mine, open_ports(settings, "room") as theirs:
        async for made in _run(mine, theirs, tmp_path / "home"):
            yield made
    await broker.stop()


async def _run(mine: Ports, theirs: Ports, home: Path) -> AsyncIterator[Stage]:
    evaluator = Evaluator(theirs, home)
    evaluator.policy = DeliveryPolicy(ack_wait_s=10.0, max_attempts=2, retry_delays_s=(0.02,))
    running = asyncio.create_task(evaluator.run())
    await wait_until_answering(mine)
    yield Stage(mine, evaluator)
    evaluator.stop()
    await running


def base_of(ports: Ports) -> Release:
    files = {
        "fake/__init__.py": ports.blobs.put(b""),
        "fake/model.py": ports.blobs.put(b"def decode(x):\n    return x\n"),
    }
    return Release("k", 0, files)


async def admit(stage: Stage, release: Release, **fields: Any) -> Candidate:
    candidate = Candidate("k", release.id, **fields)
    admitted = CandidateAdmitted(candidate)
    await stage.ports.ledger.append("candidate", candidate.id, admitted, 0)
    command = CheckCandidate(candidate, release, "[]")
    await stage.ports.bus.publish("evaluator", command)
    return candidate


async def test_a_good_candidate_is_checked_with_its_rung_and_scope(stage: Stage) -> None:
    release = base_of(stage.ports)
    changed = stage.ports.blobs.put(b"def decode(x):\n    return x + 0\n")
    candidate = await admit(stage, release, files={"fake/model.py": changed})
    recorded = await stage.event(CandidateChecked)
    check = recorded.event.check
    assert (recorded.id, check.candidate) == (candidate.id, candidate.id)
    assert check.ok
    assert (check.rung, check.scope) == ("hot", "model_function")
    assert check.changed == ("fake/model.py:decode",)


async def test_a_candidate_with_c_sources_is_built(stage: Stage) -> None:
    release = base_of(stage.ports)
    source = stage.ports.blobs.put(b"int one(void) { return 1; }\n")
    build = Build("one", ("fake/csrc/one.c",))
    await admit(stage, release, files={"fake/csrc/one.c": source}, builds=(build,))
    check = (await stage.event(CandidateChecked)).event.check
    assert check.ok
    assert check.scope == "native"
    assert stage.ports.blobs.get(check.libraries["one"]).startswith(b"\x7fELF")
    assert check.build_s > 0


async def test_a_candidate_that_does_not_compile_is_refused(stage: Stage) -> None:
    release = base_of(stage.ports)
    source = stage.ports.blobs.put(b"int one(void) { return y; }\n")
    build = Build("one", ("fake/csrc/one.c",))
    await admit(stage, release, files={"fake/csrc/one.c": source}, builds=(build,))
    check = (await stage.event(CandidateChecked)).event.check
    assert not check.ok
    assert "one.c:1" in check.reason


async def test_a_bad_candidate_is_refused_in_one_line(stage: Stage) -> None:
    release = base_of(stage.ports)
    bad = stage.ports.blobs.put(b"def decode(x:\n")
    await admit(stage, release, files={"fake/model.py": bad})
    check = (await stage.event(CandidateChecked)).event.check
    assert not check.ok
    assert check.reason.startswith("fake/model.py:1:")


async def test_a_check_that_is_delivered_twice_is_written_once(stage: Stage) -> None:
    release = base_of(stage.ports)
    changed = stage.ports.blobs.put(b"def decode(x):\n    return x + 0\n")
    candidate = await admit(stage, release, files={"fake/model.py": changed})
    await stage.event(CandidateChecked)
    again = CheckCandidate(candidate, release, "[]")
    await stage.ports.bus.publish("evaluator", again)
    other = stage.ports.blobs.put(b"def decode(x):\n    return x + 1\n")
    await admit(stage, release, files={"fake/model.py": other})
    await stage.event(CandidateChecked, 2)
    names = [r.id async for r in stage.ports.ledger.read() if isinstance(r.event, CandidateChecked)]
    assert names.count(candidate.id) == 1


async def test_a_gain_is_judged_and_anybody_can_derive_the_verdict_again(
    stage: Stage, tmp_path: Path
) -> None:
    lease = await stage.grant(make_lease())
    committed = await stage.ports.bus.ask(
        "evaluator", CommitSeed(lease.trial, lease.epoch), SeedCommitment
    )
    evidence = await stage.measured(lease)
    await stage.judge(lease, evidence)
    ended = (await stage.event(TrialEnded)).event
    assert ended.verdict.word == "faster"
    assert ended.epoch == lease.epoch
    held = msgspec.json.decode(stage.ports.blobs.get(evidence), type=Evidence)
    assert held.commitment == committed.commitment
    assert recompute(stage.ports.blobs, evidence, tmp_path / "again") == ended.verdict


async def test_a_zombies_late_result_is_refused_and_the_new_holder_commits(stage: Stage) -> None:
    old = await stage.grant(make_lease())
    evidence = await stage.measured(old)
    lost = TrialLost("k", old.trial, old.epoch, "its lease ran out")
    await stage.ports.ledger.append("trial", old.trial, lost, old.epoch)
    new = await stage.grant(make_lease(attempt=2))
    await stage.judge(old, evidence)
    await stage.judge(new, await stage.measured(new))
    ended = (await stage.event(TrialEnded)).event
    assert ended.epoch == new.epoch
    assert await stage.count(TrialEnded) == 1


async def test_a_trial_is_judged_once_however_often_it_is_asked(stage: Stage) -> None:
    first = await stage.grant(make_lease())
    evidence = await stage.measured(first)
    for _ in range(3):
        await stage.judge(first, evidence)
    second = await stage.grant(make_lease(trial="t2"))
    await stage.judge(second, await stage.measured(second))
    await stage.event(TrialEnded, 2)
    assert await stage.count(TrialEnded) == 2


async def test_two_grants_of_a_trial_get_different_requests(stage: Stage) -> None:
    old = await stage.grant(make_lease())
    _, before = await stage.reveal(old)
    lost = TrialLost("k", old.trial, old.epoch, "the engine died")
    await stage.ports.ledger.append("trial", old.trial, lost, old.epoch)
    new = await stage.grant(make_lease(attempt=2))
    _, after = await stage.reveal(new)
    assert before.seed != after.seed
    assert before.pairs[0].requests != after.pairs[0].requests


async def test_nothing_is_revealed_to_the_holder_of_an_old_lease(stage: Stage) -> None:
    lease = await stage.grant(make_lease())
    old = msgspec.structs.replace(lease, epoch=lease.epoch + 1)
    with pytest.raises(AskRefused, match="moved on"):
        await stage.reveal(old)


async def test_a_workload_that_cannot_be_made_is_refused_in_one_line(stage: Stage) -> None:
    lease = await stage.grant(make_lease(workload=Workload("single", params={"speed": 1.0})))
    with pytest.raises(AskRefused, match="no parameter 'speed'"):
        await stage.reveal(lease)


@pytest.mark.parametrize(
    "changes",
    [
        {"commitment": "0" * 64},
        {"epoch": 99},
        {"lease": make_lease(campaign="other")},
        {"script": "0" * 64},
        {"blocks": ()},
    ],
    ids=["commitment", "epoch", "lease", "script", "blocks"],
)
async def test_evidence_that_does_not_hold_loses_the_trial(
    stage: Stage, changes: dict[str, Any]
) -> None:
    lease = await stage.grant(make_lease())
    await stage.judge(lease, await stage.measured(lease, **changes))
    lost = (await stage.event(TrialLost)).event
    assert lost.reason.startswith("evidence:")
    assert await stage.count(TrialEnded) == 0


async def test_evidence_that_is_not_there_loses_the_trial(stage: Stage) -> None:
    lease = await stage.grant(make_lease())
    await stage.judge(lease, "0" * 64)
    assert (await stage.event(TrialLost)).event.trial == lease.trial


async def test_a_base_that_cannot_be_read_ends_in_a_refusal_after_some_tries(stage: Stage) -> None:
    lost = Release("k", 0, {"fake/model.py": "0" * 64})
    changed = stage.ports.blobs.put(b"def decode(x):\n    return x + 0\n")
    await admit(stage, lost, files={"fake/model.py": changed})
    check = (await stage.event(CandidateChecked)).event.check
    assert not check.ok
    assert "could not be checked" in check.reason
    async with asyncio.timeout(LIMIT_S):
        while not (letters := await stage.ports.bus.dead_letters("evaluator")):  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert "gave up" in letters[0].reason


async def test_texts_are_tokenised_when_a_campaign_is_ready(stage: Stage, tmp_path: Path) -> None:
    tokenizer = stage.ports.blobs.put(small_tokenizer())
    facts = EngineFacts("fake", "cpu", {}, "[]", tokenizer)
    ready = CampaignReady("k", "h", facts, base_of(stage.ports), 1.0)
    await stage.ports.ledger.append("campaign", "k", ready, 0)
    tokens = tmp_path / "home" / "tokens"
    async with asyncio.timeout(LIMIT_S):
        while not list(tokens.glob("*.json")):  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)


def small_tokenizer() -> bytes:
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made.to_str().encode()


async def test_the_process_starts_answers_and_stays_small(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "nats")
    url = await broker.start()
    environment = {**os.environ, "PERPETUNE_NATS_URL": url}
    environment |= {"PERPETUNE_RUN_DIR": str(tmp_path), "PERPETUNE_HOME": str(tmp_path / "home")}
    settings = Settings(nats_url=url, run_dir=str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evaluator", env=environment
    )
    try:
        async with open_ports(settings, "test") as ports, asyncio.timeout(LIMIT_S):
            await wait_until_answering(ports)
            stage = Stage(ports, None)  # type: ignore[arg-type]
            lease = await stage.grant(make_lease())
            await stage.judge(lease, await stage.measured(lease))
            await stage.event(TrialEnded)
            beats = await ports.bus.signals(Heartbeat, room="evaluator")
            async for beat in beats:
                print("evaluator: resident MB", beat.body.resident_bytes / 1e6)
                assert beat.body.resident_bytes <= 120_000_000
                break
            await beats.aclose()
    finally:
        process.terminate()
        assert await process.wait() == 0
    await broker.stop()
