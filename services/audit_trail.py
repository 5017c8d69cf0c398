"""The journal of promotions against the ledger: does each hold exactly what the other holds? Pure.

Feed every event of the ledger in order, then ask for the faults.
"""

from collections.abc import Sequence

from protos import events as e
from protos.ids import digest_bytes
from services.ledger import Recorded
from services.promotions import Entry, Fault, Seal
from services.sealing import RangeDigest

Promised = e.ReleasePromoted | e.CampaignFinished


class Trail:
    """`entries` are those of the journal that can be read, in order.

    `running`: somebody writes now, so that the last promise may not be published yet.
    """

    def __init__(self, entries: Sequence[Entry], running: bool = False) -> None:
        self._entries = entries
        self._kept = _kept(entries)
        self._running = running
        self._ranges = [RangeDigest() for _ in entries]
        self._published: dict[tuple[str, str], Recorded] = {}
        self._sealed: dict[int, str] = {}
        self._wanted = {seal.seq for entry in entries for seal in entry.trials.values()}
        self._at = 0

    def take(self, recorded: Recorded) -> None:
        """The ledger's next event."""
        while self._at < len(self._entries) and self._entries[self._at].ledger_upto < recorded.seq:
            self._at += 1
        if self._at < len(self._entries):
            self._ranges[self._at].add(recorded)
        if recorded.seq in self._wanted:
            self._sealed[recorded.seq] = digest_bytes(recorded.raw)
        if isinstance(recorded.event, Promised):
            self._published[recorded.entity, recorded.id] = recorded

    @property
    def published(self) -> list[Recorded]:
        """The promotions and endings that the ledger holds."""
        return list(self._published.values())

    def faults(self) -> list[Fault]:
        """What doesn't fit, in the journal's order, then what it lacks."""
        found = [fault for place in range(len(self._entries)) for fault in self._entry(place)]
        return found + [
            Fault(None, f"{_named(recorded)} is in the ledger, the journal has no record of it")
            for recorded in self._published.values()
            if not any(self._kept_of(recorded))
        ]

    def _kept_of(self, recorded: Recorded) -> list[Entry]:
        at = recorded.entity, recorded.id
        return [entry for entry in self._kept if (entry.entity, entry.id) == at]

    def _entry(self, place: int) -> list[Fault]:
        entry = self._entries[place]
        found: list[str] = []
        if self._ranges[place].hex() != entry.ledger:
            found.append(
                f"covers the ledger's events {entry.ledger_from} to {entry.ledger_upto}: one of "
                "them was changed, is missing, or was put in later"
            )
        covered = self._entries[place - 1].ledger_upto if place else 0
        if entry.ledger_from != covered + 1:
            found.append(f"covers the ledger from {entry.ledger_from} on, not from {covered + 1}")
        if any(entry is kept for kept in self._kept):
            found += self._promise(entry, place == len(self._entries) - 1)
        return [Fault(entry.entry, what) for what in found]

    def _promise(self, entry: Entry, last: bool) -> list[str]:
        what = f"release {entry.release}" if entry.release else "the campaign's end"
        published = self._published.get((entry.entity, entry.id))
        found = [
            line for trial, seal in entry.trials.items() if (line := self._ending(trial, seal))
        ]
        if published is None:
            if not (last and self._running):
                found.insert(0, f"names {what}, which the ledger doesn't have")
        elif digest_bytes(published.raw) != entry.event:
            found.insert(0, f"names {what}, which stands in the ledger with other bytes")
        return found

    def _ending(self, trial: str, seal: Seal) -> str | None:
        known = self._sealed.get(seal.seq)
        if known is None:
            return f"stands on trial {trial}, whose verdict the ledger no longer has"
        if known != seal.sha256:
            return f"stands on trial {trial}, whose verdict in the ledger has other bytes"
        return None


def _kept(entries: Sequence[Entry]) -> list[Entry]:
    """Promises that weren't withdrawn by the line after them."""
    following = [*entries[1:], None][: len(entries)]
    return [
        entry
        for entry, after in zip(entries, following, strict=True)
        if entry.kind != "withdrawn"
        and not (after is not None and after.kind == "withdrawn" and after.event == entry.event)
    ]


def _named(recorded: Recorded) -> str:
    event = recorded.event
    if isinstance(event, e.ReleasePromoted):
        what = f"release {event.release.number} ({event.release.id})"
    else:
        what = f"the end of campaign {recorded.id}"
    return f"{what}, event {recorded.seq},"
