"""The evaluator room: receives, calls what decides, publishes. It owns the secret of the seeds."""

import asyncio
from pathlib import Path

import msgspec

from evaluator.blocks import EvidenceError
from evaluator.build import BuildRefused, BuildTrouble, build_library
from evaluator.check import Checked, CheckRefused, check
from evaluator.recompute import ScriptMaker, judge_again, read_evidence, read_script
from evaluator.seeds import commitment_of, read_secret, seed_of
from evaluator.workloads.base import WorkloadError
from protos.candidate import Candidate, Check
from protos.events import (
    CampaignReady,
    CandidateChecked,
    CandidateRebased,
    TrialEnded,
    TrialGranted,
    TrialLost,
)
from protos.messages import (
    CheckCandidate,
    CommitSeed,
    JudgeTrial,
    RevealScript,
    ScriptRevealed,
    SeedCommitment,
)
from protos.trial import Lease, Script, Verdict
from services.actor import Actor
from services.bus import Delivery
from services.errors import BlobError, Conflict, Refused, SettingsError, TroubleError
from services.hooks import on_ask, on_command, on_event
from services.ledger import Recorded
from services.ports import Ports


class Evaluator(Actor):
    """`home` keeps the secret, built libraries and token ids from one start to the next."""

    room = "evaluator"
    concurrency = 4

    def __init__(self, ports: Ports, home: Path, *, instance: str = "0") -> None:
        super().__init__(ports, instance=instance)
        self._home = home
        self._scripts = ScriptMaker(ports.blobs, home / "tokens")
        self._building = asyncio.Semaphore(1)  # builds are idle-time work: one after another
        self._secret = b""
        self._from_seq = 1
        self._judged = self._checked = 0

    async def started(self) -> None:
        try:
            self._secret = await asyncio.to_thread(read_secret, self._home)
        except (OSError, ValueError) as error:
            raise SettingsError(f"the evaluator can't keep its secret: {error}") from error
        self._from_seq = await self.ledger.head() + 1

    def events_from(self) -> int:
        return self._from_seq

    def vitals(self) -> dict[str, bool | int | float | str]:
        return {"judged": self._judged, "checked": self._checked}

    @on_event(CampaignReady)
    async def prepare_texts(self, recorded: Recorded) -> None:
        """Tokenise ahead, so that the first script is revealed in time."""
        tokenizer = recorded.event.facts.tokenizer
        if tokenizer is None:
            return
        try:
            await asyncio.to_thread(self._scripts.content, tokenizer)
        except (WorkloadError, BlobError) as error:
            self.log.error("no texts for this model", reason=str(error))

    @on_ask(CommitSeed)
    async def commit_seed(self, ask: CommitSeed) -> SeedCommitment:
        seed = seed_of(self._secret, ask.trial, ask.epoch)
        return SeedCommitment(ask.trial, commitment_of(seed))

    @on_ask(RevealScript)
    async def reveal_script(self, ask: RevealScript) -> ScriptRevealed:
        lease = ask.lease
        if await self.ledger.last("trial", lease.trial) != lease.epoch:
            raise Refused(f"trial {lease.trial} has moved on from epoch {lease.epoch}")
        seed = seed_of(self._secret, lease.trial, lease.epoch)
        try:
            script = await asyncio.to_thread(
                self._scripts.script, lease, seed, ask.tokenizer, ask.max_context
            )
        except WorkloadError as error:
            raise Refused(str(error)) from error
        except BlobError as error:
            raise Refused(f"the workload's data can't be read: {error}") from error
        try:
            digest = await asyncio.to_thread(self.blobs.put, msgspec.json.encode(script))
        except BlobError as error:
            raise TroubleError(str(error)) from error
        return ScriptRevealed(lease.trial, digest)

    @on_command(CheckCandidate)
    async def check_candidate(self, command: CheckCandidate, delivery: Delivery) -> None:
        candidate = command.candidate
        last = await self._last("candidate", candidate.id)
        if last is not None and isinstance(last.event, CandidateChecked | CandidateRebased):
            return  # delivered again after its end was written
        found = await self._check(command)
        event = CandidateChecked(candidate.campaign, found)
        await self.ledger.append("candidate", candidate.id, event, last.seq if last else 0)
        self._checked += 1

    async def _check(self, command: CheckCandidate) -> Check:
        candidate, begun_s = command.candidate, self.clock.monotonic_s()
        try:
            checked = await asyncio.to_thread(
                check, candidate, command.release, command.space, self.blobs
            )
            checked_s = self.clock.monotonic_s()
            libraries = await self._build(checked)
        except (CheckRefused, BuildRefused) as error:
            return self._refused(candidate, str(error), begun_s)
        except (BuildTrouble, BlobError) as error:
            raise TroubleError(str(error)) from error
        return Check(
            candidate=candidate.id,
            ok=True,
            rung=checked.scope.rung,
            scope=checked.scope.word,
            changed=checked.scope.changed,
            libraries=libraries,
            check_s=checked_s - begun_s,
            build_s=self.clock.monotonic_s() - checked_s if libraries else 0.0,
        )

    def _refused(self, candidate: Candidate, reason: str, begun_s: float) -> Check:
        spent_s = self.clock.monotonic_s() - begun_s
        return Check(candidate.id, ok=False, reason=reason, scope="none", check_s=spent_s)

    async def _build(self, checked: Checked) -> dict[str, str]:
        if not checked.builds:
            return {}
        native = {p: d for p, d in checked.files.items() if p.endswith((".c", ".h"))}
        libraries = {}
        async with self._building:
            sources = {path: self.blobs.get(digest) for path, digest in native.items()}
            for build in checked.builds:
                libraries[build.name] = await asyncio.to_thread(
                    build_library, build, sources, self.blobs, self._home / "builds"
                )
        return libraries

    @on_command(JudgeTrial)
    async def judge_trial(self, command: JudgeTrial, delivery: Delivery) -> None:
        granted = await self._last("trial", command.trial)
        if granted is None or granted.seq != command.epoch:
            self._late(command)
            return
        if not isinstance(granted.event, TrialGranted):
            self.log.error("no lease at this epoch", trial=command.trial, epoch=command.epoch)
            return
        lease = granted.event.lease
        event: TrialEnded | TrialLost
        try:
            verdict = await asyncio.to_thread(self._judge, command, lease)
            event = TrialEnded(lease.campaign, command.epoch, verdict)
        except (EvidenceError, BlobError) as error:
            event = TrialLost(lease.campaign, command.trial, command.epoch, f"evidence: {error}")
        try:
            await self.ledger.append("trial", command.trial, event, command.epoch)
        except Conflict:
            self._late(command)
            return
        self._judged += 1

    def _judge(self, command: JudgeTrial, lease: Lease) -> Verdict:
        evidence = read_evidence(self.blobs, command.evidence)
        mine = msgspec.structs.replace(lease, epoch=command.epoch)
        if (evidence.trial, evidence.epoch) != (command.trial, command.epoch):
            raise EvidenceError(f"it is of trial {evidence.trial}, epoch {evidence.epoch}")
        if msgspec.structs.replace(evidence.lease, epoch=command.epoch) != mine:
            raise EvidenceError("its lease isn't the one that was granted")
        script = read_script(self.blobs, evidence)
        self._check_seed(command, script)
        return judge_again(evidence, script, command.evidence, self._scripts)

    def _check_seed(self, command: JudgeTrial, script: Script | None) -> None:
        if script is not None and script.seed != seed_of(
            self._secret, command.trial, command.epoch
        ):
            raise EvidenceError("its seed isn't the one of this grant")

    def _late(self, command: JudgeTrial) -> None:
        """A zombie's result, or one that was already judged: it changes nothing."""
        self.log.warning("late evidence refused", trial=command.trial, epoch=command.epoch)

    async def gave_up(self, command: CheckCandidate | JudgeTrial, reason: str) -> None:
        if isinstance(command, CheckCandidate):
            candidate = command.candidate
            refused = Check(candidate.id, ok=False, reason=reason, scope="none")
            event = CandidateChecked(candidate.campaign, refused)
            last = await self._last("candidate", candidate.id)
            if last is None or not isinstance(last.event, CandidateChecked | CandidateRebased):
                await self.ledger.append("candidate", candidate.id, event, last.seq if last else 0)
            return
        granted = await self._last("trial", command.trial)
        if granted is None or granted.seq != command.epoch:
            return
        if isinstance(granted.event, TrialGranted):
            campaign = granted.event.lease.campaign
            lost = TrialLost(campaign, command.trial, command.epoch, f"not judged: {reason}")
            await self.ledger.append("trial", command.trial, lost, command.epoch)

    async def _last(self, entity: str, id: str) -> Recorded | None:
        """The entity's last event; None when it has none."""
        seq = await self.ledger.last(entity, id)
        if seq == 0:
            return None
        async for recorded in self.ledger.read(seq, seq):
            return recorded
        return None
