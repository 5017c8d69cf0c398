"""Writes the journal of promotions: each promise before its event is published.

A promise that wasn't kept (the process ended in between, somebody else was first) is withdrawn by
an entry of its own, so that journal and ledger always tell the same story.
"""

from __future__ import annotations

from protos import events as e
from protos.codec import encode
from protos.ids import digest_bytes
from protos.subjects import message_name
from services.clock import Clock
from services.errors import TroubleError
from services.ledger import Ledger
from services.ports import Ports
from services.promotions import Entry, PromotionJournal, Seal
from services.sealing import RangeDigest, last_of, seal, seal_range

Promised = e.ReleasePromoted | e.CampaignFinished


class Notary:
    """One journal, one ledger. Only the scheduler that leads has one open."""

    def __init__(self, ports: Ports, journal: PromotionJournal) -> None:
        self._ledger: Ledger = ports.ledger
        self._clock: Clock = ports.clock
        self._journal = journal

    async def open(self) -> None:
        """Read the journal and settle its last promise. Raises JournalError, TroubleError."""
        self._journal.open()
        await self.settle()

    async def promise(self, entity: str, id: str, event: Promised) -> None:
        """Write down what will be published next. Raises TroubleError: then it must not be."""
        digest, last = digest_bytes(encode(event)), self._last()
        if last is not None and last.event == digest and last.kind != "withdrawn":
            return  # promised before, and its append ended in trouble: the same once more
        await self.settle()
        first = self._covered() + 1
        upto = await self._ledger.head()
        entry = Entry(
            entry=0,
            before=None,
            kind=message_name(event),
            at_s=self._clock.now_s(),
            campaign=_campaign(event),
            entity=entity,
            id=id,
            event=digest,
            release=event.release.id if isinstance(event, e.ReleasePromoted) else None,
            trials=await self._endings(event),
            ledger_from=first,
            ledger_upto=upto,
            ledger=await seal_range(self._ledger, first, upto),
        )
        self._journal.append(entry)

    async def settle(self) -> None:
        """Withdraw the last promise if the ledger doesn't hold what it promised."""
        last = self._last()
        if last is None or last.kind == "withdrawn":
            return
        found = await last_of(self._ledger, last.entity, last.id)
        if found is None or digest_bytes(found.raw) != last.event:
            self._journal.append(
                Entry(
                    entry=0,
                    before=None,
                    kind="withdrawn",
                    at_s=self._clock.now_s(),
                    campaign=last.campaign,
                    entity=last.entity,
                    id=last.id,
                    event=last.event,
                    release=last.release,
                    ledger_from=last.ledger_upto + 1,
                    ledger_upto=last.ledger_upto,
                    ledger=RangeDigest().hex(),
                )
            )

    def _last(self) -> Entry | None:
        return self._journal.entries[-1] if self._journal.entries else None

    def _covered(self) -> int:
        last = self._last()
        return last.ledger_upto if last else 0

    async def _endings(self, event: Promised) -> dict[str, Seal]:
        if not isinstance(event, e.ReleasePromoted):
            return {}
        found = {}
        for trial in event.trials:
            ending = await last_of(self._ledger, "trial", trial)
            if ending is None or not isinstance(ending.event, e.TrialEnded):
                raise TroubleError(f"trial {trial} is no longer ended: nothing stands on it now")
            found[trial] = seal(ending)
        return found


def _campaign(event: Promised) -> str:
    return event.release.campaign if isinstance(event, e.ReleasePromoted) else event.campaign
