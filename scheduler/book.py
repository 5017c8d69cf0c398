"""The scheduler's copy of the ledger: its fold, and what was written but isn't folded yet.

A decision is taken only on a fold that holds all that this process wrote and all that it was told
it lost against, so that nothing is granted twice.
"""

from __future__ import annotations

import asyncio

from opentelemetry.context import Context

from protos import events as e
from scheduler.doors import about
from scheduler.fold import apply
from scheduler.snapshot import Snapshots
from scheduler.state import Campaign, State
from services.errors import Conflict, TroubleError
from services.ledger import Ledger, Recorded
from services.log import get_log
from services.telemetry import span


class Book:
    """`state` is the fold up to `state.last_seq`."""

    def __init__(self, ledger: Ledger, snapshots: Snapshots, snapshot_events: int) -> None:
        self.state = State()
        self._ledger = ledger
        self._snapshots = snapshots
        self._snapshot_events = snapshot_events
        self._barrier = 0
        self._saved = 0
        self._grown = asyncio.Condition()
        self._traces: dict[str, Context] = {}  # of live candidates, so that their spans join up
        self._log = get_log("scheduler")

    async def replay(self) -> None:
        """Fold all that the ledger holds, from the snapshot on."""
        self.state = self._snapshots.load(await self._ledger.head())
        self._saved = self.state.last_seq
        async for recorded in self._ledger.read(self.state.last_seq + 1):
            self._take(recorded)
        await self._find_traces()

    async def fold(self, recorded: Recorded) -> None:
        self._take(recorded)
        async with self._grown:
            self._grown.notify_all()

    def is_current(self) -> bool:
        """Whether the fold holds everything that this process wrote."""
        return self.state.last_seq >= self._barrier

    async def current(self) -> State:
        """The state once it is current."""
        async with self._grown:
            await self._grown.wait_for(self.is_current)
        return self.state

    async def up_to_date(self) -> State:
        """The state once it holds all that was stored before this call.

        Who sends a command may have read an event that isn't folded here yet. Raises TroubleError.
        """
        self._barrier = max(self._barrier, await self._ledger.head())
        return await self.current()

    async def append(self, entity: str, id: str, event: e.Event, expect: int | None = None) -> None:
        """Write an event; without `expect`, behind whatever the entity has now.

        Raises Conflict and TroubleError (written or not). Nothing is current from then on before
        what it was lost against, or all that is stored, is folded.
        """
        with span(f"append {entity}", self.trace(next(iter(about(event)), None))):
            if expect is None:
                expect = await self._ledger.last(entity, id)
            try:
                seq = await self._ledger.append(entity, id, event, expect)
            except Conflict as lost:
                self._barrier = max(self._barrier, lost.actual)
                raise
            except TroubleError:
                await self._recover()
                raise
        self._barrier = max(self._barrier, seq)

    async def change(self, campaign: Campaign, event: e.Event) -> None:
        """Write an event of a campaign unless it has moved on, in which case it stands as it is."""
        try:
            await self.append("campaign", campaign.id, event, campaign.seq)
        except Conflict as lost:
            self._log.info("the campaign moved on", campaign=campaign.id, reason=str(lost))

    async def _recover(self) -> None:
        """After an append of unknown end: all that is stored must be folded first."""
        try:
            self._barrier = max(self._barrier, await self._ledger.head())
        except TroubleError as trouble:  # the next append meets the same trouble
            self._log.warning("trouble", reason=str(trouble))

    def trace(self, candidate: str | None) -> Context | None:
        return self._traces.get(candidate or "")

    def save(self, *, now: bool = False) -> None:
        """Write a snapshot when one is due. A full disk costs a longer replay, nothing else."""
        if not now and self.state.last_seq - self._saved < self._snapshot_events:
            return
        self._saved = self.state.last_seq
        try:
            self._snapshots.save(self.state)
        except OSError as error:
            self._log.warning("no snapshot", reason=str(error))

    async def _find_traces(self) -> None:
        """Read the beginnings of the traces that a snapshot passed over."""
        for campaign in self.state.campaigns.values():
            for id in campaign.live.keys() - self._traces.keys():
                seq = campaign.candidates[id].admitted_seq
                async for recorded in self._ledger.read(seq, seq):
                    self._traces[id] = recorded.context

    def _take(self, recorded: Recorded) -> None:
        event = recorded.event
        apply(self.state, recorded.seq, recorded.time_s, event)
        if isinstance(event, e.CandidateAdmitted):
            self._traces[event.candidate.id] = recorded.context
        elif isinstance(event, e.TrialEnded | e.CandidateChecked | e.CandidateRebased):
            campaign = self.state.campaigns.get(event.campaign)
            for id in about(event):
                if campaign is None or id not in campaign.live:
                    self._traces.pop(id, None)
