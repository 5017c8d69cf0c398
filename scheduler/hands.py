"""Carries decisions out: writes the events, merges candidates, sends the commands that are owed."""

from __future__ import annotations

from protos import events as e
from scheduler.book import Book
from scheduler.decide import Append, Owed, Rebase, decide, owed
from scheduler.notary import Notary, Promised
from scheduler.rebase import MergeConflict, rebase
from scheduler.state import Campaign
from services.blobs import Blobs
from services.bus import Bus
from services.clock import Clock
from services.errors import BlobError, Conflict, TroubleError
from services.log import get_log
from services.ports import Ports
from services.telemetry import span


class Hands:
    """One decision at a time. `sent` remembers, for this process's life, what was sent when."""

    def __init__(self, ports: Ports, book: Book, notary: Notary, idle_finish_s: float) -> None:
        self._bus: Bus = ports.bus
        self._blobs: Blobs = ports.blobs
        self._clock: Clock = ports.clock
        self._book = book
        self._notary = notary
        self._idle_finish_s = idle_finish_s
        self._sent: dict[str, float] = {}
        self._log = get_log("scheduler")

    async def act(self) -> None:
        """Decide on the fold as it is, and do it. Nothing where the fold is behind."""
        if not self._book.is_current():
            return
        state = self._book.state
        try:
            for action in decide(state, self._clock.now_s(), self._idle_finish_s):
                if isinstance(action, Rebase):
                    await self._rebase(state.campaigns[action.campaign], action.candidate)
                else:
                    await self._append(action)
            await self._send(owed(state))
        except Conflict as lost:  # somebody was first: fold what they wrote, decide again
            self._log.info("lost a race", reason=str(lost))
        except TroubleError as trouble:
            self._log.warning("trouble", reason=str(trouble))
        self._book.save()

    async def _append(self, action: Append) -> None:
        """Write an event; what the journal of promotions must hold is promised there first."""
        promised = isinstance(action.event, Promised)
        if isinstance(action.event, Promised):
            await self._notary.promise(action.entity, action.id, action.event)
        try:
            await self._book.append(action.entity, action.id, action.event, action.expect)
        except Conflict:
            if promised:
                await self._notary.settle()
            raise

    async def _rebase(self, campaign: Campaign, id: str) -> None:
        """Admit the merged candidate, then close the old one, so that a crash between is mended."""
        entry, onto = campaign.candidates[id], campaign.incumbent
        base = campaign.release(entry.candidate.base)
        if onto is None or base is None:
            raise ValueError(f"candidate {id} or its campaign has no release")
        heir, reason = None, ""
        with span("rebase", self._book.trace(id), candidate=id):
            try:
                merged = rebase(entry.candidate, base, onto, self._blobs.get)
            except (MergeConflict, BlobError) as conflict:
                reason = str(conflict)
            else:
                heir = merged.candidate.id
                for blob in merged.blobs.values():
                    self._blobs.put(blob)
                if heir not in campaign.candidates:
                    admitted = e.CandidateAdmitted(merged.candidate)
                    await self._book.append("candidate", heir, admitted)
            event = e.CandidateRebased(campaign.id, id, heir, reason)
            await self._book.append("candidate", id, event, entry.seq)

    async def _send(self, commands: list[Owed]) -> None:
        now_s = self._clock.monotonic_s()
        self._sent = {c.once: self._sent[c.once] for c in commands if c.once in self._sent}
        for owing in commands:
            sent_s = self._sent.get(owing.once)
            if sent_s is not None and (owing.again_s is None or now_s < sent_s + owing.again_s):
                continue
            with span(f"send {owing.once.split()[0]}", self._book.trace(owing.candidate)):
                await self._bus.publish(owing.room, owing.command, key=owing.key)
            self._sent[owing.once] = now_s
