"""The evaluator room: receives, calls what decides, publishes."""

import asyncio
from pathlib import Path

import msgspec

from evaluator.blocks import EvidenceError
from evaluator.court import Court
from evaluator.seeds import read_secret
from evaluator.workloads.base import WorkloadError
from evaluator.workshop import Workshop, refused
from protos.candidate import Check
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
from protos.trial import Lease
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
        try:
            secret = read_secret(home)
        except (OSError, ValueError) as error:
            raise SettingsError(f"the evaluator can't keep its secret: {error}") from error
        self._court = Court(ports.blobs, home / "tokens", secret)
        self._workshop = Workshop(ports.blobs, ports.clock, home / "builds")
        self._from_seq = 1
        self._judged = self._checked = 0

    async def started(self) -> None:
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
            await asyncio.to_thread(self._court.scripts.content, tokenizer)
        except (WorkloadError, BlobError) as error:
            self.log.error("no texts for this model", reason=str(error))

    @on_ask(CommitSeed)
    async def commit_seed(self, ask: CommitSeed) -> SeedCommitment:
        return SeedCommitment(ask.trial, self._court.commitment(ask.trial, ask.epoch))

    @on_ask(RevealScript)
    async def reveal_script(self, ask: RevealScript) -> ScriptRevealed:
        trial, epoch = ask.lease.trial, ask.lease.epoch
        if await self.ledger.last("trial", trial) != epoch:
            raise Refused(f"trial {trial} has moved on from epoch {epoch}")
        try:
            script = await asyncio.to_thread(self._court.script, ask)
        except (WorkloadError, BlobError) as error:
            raise Refused(f"the workload can't be made: {error}") from error
        try:
            digest = await asyncio.to_thread(self.blobs.put, msgspec.json.encode(script))
        except BlobError as error:
            raise TroubleError(str(error)) from error
        return ScriptRevealed(trial, digest)

    @on_command(CheckCandidate)
    async def check_candidate(self, command: CheckCandidate, delivery: Delivery) -> None:
        last = await self._last("candidate", command.candidate.id)
        if _is_checked(last):
            return  # delivered again after its end was written
        found = await self._workshop.check(command)
        await self._end_check(command, found, last)
        self._checked += 1

    @on_command(JudgeTrial)
    async def judge_trial(self, command: JudgeTrial, delivery: Delivery) -> None:
        lease = await self._granted(command)
        if lease is None:
            return
        event: TrialEnded | TrialLost
        try:
            verdict = await asyncio.to_thread(self._court.judge, command, lease)
            event = TrialEnded(lease.campaign, command.epoch, verdict)
        except (EvidenceError, BlobError) as error:
            event = TrialLost(lease.campaign, command.trial, command.epoch, f"evidence: {error}")
        try:
            await self.ledger.append("trial", command.trial, event, command.epoch)
        except Conflict:
            self._late(command)
            return
        self._judged += 1

    async def gave_up(self, command: CheckCandidate | JudgeTrial, reason: str) -> None:
        if isinstance(command, CheckCandidate):
            last = await self._last("candidate", command.candidate.id)
            if not _is_checked(last):
                found = refused(command.candidate, f"it could not be checked: {reason}")
                await self._end_check(command, found, last)
            return
        lease = await self._granted(command)
        if lease is not None:
            lost = TrialLost(lease.campaign, command.trial, command.epoch, f"not judged: {reason}")
            await self.ledger.append("trial", command.trial, lost, command.epoch)

    async def _end_check(
        self, command: CheckCandidate, found: Check, last: Recorded | None
    ) -> None:
        candidate, seq = command.candidate, last.seq if last else 0
        event = CandidateChecked(candidate.campaign, found)
        await self.ledger.append("candidate", candidate.id, event, seq)

    async def _granted(self, command: JudgeTrial) -> Lease | None:
        """The lease that the command's epoch granted, while it still holds."""
        last = await self._last("trial", command.trial)
        if last is None or last.seq != command.epoch or not isinstance(last.event, TrialGranted):
            self._late(command)
            return None
        return last.event.lease

    def _late(self, command: JudgeTrial) -> None:
        """A zombie's result, or one that was already judged: it changes nothing."""
        self.log.warning("late evidence refused", trial=command.trial, epoch=command.epoch)

    async def _last(self, entity: str, id: str) -> Recorded | None:
        """The entity's last event; None when it has none."""
        seq = await self.ledger.last(entity, id)
        if seq == 0:
            return None
        async for recorded in self.ledger.read(seq, seq):
            return recorded
        return None


def _is_checked(last: Recorded | None) -> bool:
    return last is not None and isinstance(last.event, CandidateChecked | CandidateRebased)
