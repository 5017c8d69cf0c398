"""The scheduler's mailbox: follows the ledger, and answers its four commands and its one ask."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from protos import events as e
from protos.messages import (
    AskStatus,
    CampaignStatus,
    OpenCampaign,
    ResumeCampaign,
    StopCampaign,
    SubmitCandidate,
)
from scheduler.admission import knows, refusal
from scheduler.book import Book
from scheduler.budget import wall_seen_s, wall_spent_s
from scheduler.doors import unopenable
from scheduler.hands import Hands
from scheduler.lead import Lead
from scheduler.notary import Notary
from scheduler.settings import SchedulerSettings
from scheduler.snapshot import Snapshots
from scheduler.state import over
from scheduler.status import status_of
from services.actor import Actor
from services.bus import Delivery
from services.hooks import on_ask, on_command, on_event
from services.ledger import Recorded
from services.ports import Ports
from services.promotions import PromotionJournal

LEAD_POLL_S = 0.2


class Scheduler(Actor):
    """Decides what happens next in every campaign of its ledger, while it leads."""

    room = "scheduler"

    def __init__(
        self,
        ports: Ports,
        lead: Lead,
        snapshots: Snapshots,
        journal: PromotionJournal,
        settings: SchedulerSettings,
    ) -> None:
        super().__init__(ports)
        self._lead = lead
        self._leads = False
        self._tick_s = settings.tick_s
        self._wake = asyncio.Event()
        self.book = Book(ports.ledger, snapshots, settings.snapshot_events)
        self._notary = Notary(ports, journal)
        self._hands = Hands(ports, self.book, self._notary, settings.idle_finish_s)

    async def started(self) -> None:
        """Wait for the lead, fold what the ledger holds, and take its campaigns over."""
        while not self._lead.take():
            if self._stop.is_set():
                return
            await self.clock.sleep(LEAD_POLL_S)
        await self._notary.open()
        await self.book.replay()
        self._leads = True
        for campaign in self.book.state.campaigns.values():
            if campaign.since_s is not None:  # its last leader ended without a word
                spent_s = wall_seen_s(campaign)
                event = e.CampaignResumed(campaign.id, spent_s, campaign.budget_s)
                await self.book.change(campaign, event)
        self.spawn(self._decide_for_ever(), "decisions")

    def events_from(self) -> int:
        return self.book.state.last_seq + 1

    async def stopping(self) -> None:
        """Pause what runs, with the time up to here on its bill."""
        if not self._leads:
            return
        for campaign in self.book.state.campaigns.values():
            if campaign.since_s is not None:
                wall_s = wall_spent_s(campaign, self.clock.now_s())
                event = e.CampaignPaused(campaign.id, "the scheduler was stopped", wall_s)
                await self.book.change(campaign, event)
        self.book.save(now=True)

    def vitals(self) -> dict[str, bool | int | float | str]:
        return {"leads": self._leads, "seq": self.book.state.last_seq}

    async def _decide_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):  # budgets and leases run out without an event
                async with asyncio.timeout(self._tick_s):
                    await self._wake.wait()
            self._wake.clear()
            await self._hands.act()

    @on_event()
    async def saw(self, recorded: Recorded) -> None:
        await self.book.fold(recorded)
        self._wake.set()

    @on_command(OpenCampaign)
    async def open(self, command: OpenCampaign, delivery: Delivery) -> None:
        state = await self.book.up_to_date()
        if command.campaign in state.campaigns or command.campaign in state.turned_away:
            self.log.warning("opened before", campaign=command.campaign)
            return
        reason = unopenable(command)
        event: e.Event = e.CampaignOpened(command)
        if reason is not None:
            event = e.CampaignRefused(command.campaign, reason)
        await self.book.append("campaign", command.campaign, event, 0)

    @on_command(StopCampaign)
    async def pause(self, command: StopCampaign, delivery: Delivery) -> None:
        campaign = (await self.book.up_to_date()).campaigns.get(command.campaign)
        if campaign is None or campaign.since_s is None:
            self.log.warning("nothing to stop", campaign=command.campaign)
            return
        wall_s = wall_spent_s(campaign, self.clock.now_s())
        event = e.CampaignPaused(campaign.id, command.reason, wall_s)
        await self.book.append("campaign", campaign.id, event, campaign.seq)

    @on_command(ResumeCampaign)
    async def resume(self, command: ResumeCampaign, delivery: Delivery) -> None:
        campaign = (await self.book.up_to_date()).campaigns.get(command.campaign)
        if campaign is None or over(campaign):
            self.log.warning("nothing to resume", campaign=command.campaign)
            return
        wall_s = wall_spent_s(campaign, self.clock.now_s())
        budget_s = campaign.budget_s + command.extra_wall_s
        event = e.CampaignResumed(campaign.id, wall_s, budget_s)
        await self.book.append("campaign", campaign.id, event, campaign.seq)

    @on_command(SubmitCandidate)
    async def submit(self, command: SubmitCandidate, delivery: Delivery) -> None:
        state, candidate = await self.book.up_to_date(), command.candidate
        reason = refusal(state, candidate, self.clock.now_s())
        if reason is None:
            await self.book.append("candidate", candidate.id, e.CandidateAdmitted(candidate))
        elif delivery.attempt == 1 or not knows(state, candidate):
            event = e.CandidateRefused(candidate, reason)
            await self.book.append("candidate", candidate.id, event)
        # else: this very mail was admitted before its ack got lost

    @on_ask(AskStatus)
    async def status(self, ask: AskStatus) -> CampaignStatus:
        return status_of(self.book.state, ask.campaign, self.clock.now_s())

    async def gave_up(self, command: Any, reason: str) -> None:
        state = self.book.state
        if isinstance(command, SubmitCandidate) and not knows(state, command.candidate):
            event: e.Event = e.CandidateRefused(command.candidate, reason)
            await self.book.append("candidate", command.candidate.id, event)
        elif isinstance(command, OpenCampaign) and command.campaign not in state.campaigns:
            event = e.CampaignRefused(command.campaign, reason)
            await self.book.append("campaign", command.campaign, event, 0)
