"""A scheduler that plays a recorded campaign: it lets the doors be tested without engines.

The model's name says how the campaign goes: `refused` is refused, `search` goes on until it is
stopped, anything else runs to its end.
"""

import sys

from protos import events as e
from protos.messages import AskStatus, CampaignStatus, OpenCampaign, ResumeCampaign, StopCampaign
from recorded_campaign import Recording
from services.actor import Actor
from services.bus import Delivery
from services.hooks import on_ask, on_command
from services.main import run_room


class StandInScheduler(Actor):
    """Appends the recording's events under the campaign's own name."""

    room = "scheduler"

    @on_command(OpenCampaign)
    async def open(self, command: OpenCampaign, delivery: Delivery) -> None:
        if command.target.model == "refused":
            reason = "unknown model 'refused'; accepted: smollm2"
            await self._append(e.CampaignRefused(command.campaign, reason))
            return
        if await self.ledger.last("campaign", command.campaign):
            return  # delivered again, after a kill
        recording = Recording(self.blobs, command)
        recording.open()
        recording.search(rounds=1)
        if command.target.model != "search":
            recording.close()
        for known in recording.events:
            await self.ledger.append(known.entity, known.id, known.event, None)

    @on_command(StopCampaign)
    async def stop_it(self, command: StopCampaign, delivery: Delivery) -> None:
        await self._append(e.CampaignPaused(command.campaign, command.reason, 4.5))

    @on_command(ResumeCampaign)
    async def resume(self, command: ResumeCampaign, delivery: Delivery) -> None:
        budget_s = 300.0 + command.extra_wall_s
        await self._append(e.CampaignResumed(command.campaign, 4.5, budget_s))
        await self._append(e.CampaignFinished(command.campaign, "budget spent", 9.0, 5.0))

    @on_ask(AskStatus)
    async def status(self, ask: AskStatus) -> CampaignStatus:
        return CampaignStatus(ask.campaign, "running", waiting=3)

    async def _append(self, event: object) -> None:
        await self.ledger.append("campaign", event.campaign, event, None)  # type: ignore


sys.exit(run_room("scheduler", lambda ports, settings: StandInScheduler(ports)))
