"""The journal of promotions: what was put into service and why, on disk, beside the broker's store.

A line is `<SHA-256 of the rest> <JSON>`, and the JSON holds the digest of the line before, so that
no line can be changed, dropped or moved without a trace. A line is on disk before the release that
it names is published. What a chain can't show is its own cut end: the ledger shows that, and the
head's digest, if somebody has noted it.
"""

import os
from pathlib import Path

import msgspec

from protos.ids import digest_bytes
from services.errors import PerpetuneError, TroubleError

DIGEST_LENGTH = 64
JOURNAL = "promotions.journal"  # in the run folder


class JournalError(PerpetuneError):
    """The journal is damaged: nothing may be promoted on it."""


class Seal(msgspec.Struct, frozen=True):
    """One event of the ledger by its sequence and the SHA-256 of its bytes."""

    seq: int
    sha256: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `entry` counts from 1; `before` is the digest of the line before (none: the first).

    `kind` is the event that is promised: `release_promoted` or `campaign_finished`, of the entity
    `id`, with `event` as the digest of its bytes. `withdrawn`: the promise of the line before was
    not kept. `trials` are the endings a release stands on. `ledger` is the digest of all events
    from `ledger_from` to `ledger_upto`, so that together the lines cover the ledger from its start.
    """

    entry: int
    before: str | None
    kind: str
    at_s: float
    campaign: str
    entity: str
    id: str
    event: str
    release: str | None = None
    trials: dict[str, Seal] = {}
    ledger_from: int = 1
    ledger_upto: int = 0
    ledger: str = ""


class Fault(msgspec.Struct, frozen=True):
    """What is wrong, and where: the journal's entry (None: not in one) in words for a person."""

    entry: int | None
    what: str


def line_of(entry: Entry) -> bytes:
    """An entry as its line, without the line's end."""
    body = msgspec.json.encode(entry)
    return digest_bytes(body).encode() + b" " + body


def digest_of(line: bytes) -> str:
    """A line's digest as it stands in the line."""
    return line[:DIGEST_LENGTH].decode("ascii", "replace")


def read_chain(data: bytes) -> tuple[list[Entry], list[Fault]]:
    """The entries that can be read, and what is wrong with the chain. Pure."""
    entries: list[Entry] = []
    faults: list[Fault] = []
    lines = data.split(b"\n")
    if lines.pop():
        faults.append(Fault(len(lines) + 1, "is torn: the line has no end"))
    before: str | None = None
    for place, line in enumerate(lines, 1):
        entry = _read_line(line)
        if entry is None:
            faults.append(Fault(place, "was changed: its bytes have another digest"))
        else:
            faults += _linked(entry, entries[-1].entry if entries else 0, before, place)
            entries.append(entry)
        before = digest_of(line)
    return entries, faults


def _read_line(line: bytes) -> Entry | None:
    digest, space, body = line[:DIGEST_LENGTH], line[DIGEST_LENGTH:][:1], line[DIGEST_LENGTH + 1 :]
    if space != b" " or digest_bytes(body).encode() != digest:
        return None
    try:
        return msgspec.json.decode(body, type=Entry)
    except (msgspec.DecodeError, ValueError):
        return None


def _linked(entry: Entry, last: int, before: str | None, place: int) -> list[Fault]:
    if entry.before == before:
        return []
    if entry.entry > place:
        gap = entry.entry - last - 1
        count = "a record is" if gap == 1 else f"{gap} records are"
        return [Fault(entry.entry, f"doesn't follow record {last}: {count} missing between them")]
    return [Fault(entry.entry, "doesn't follow the line before: its digest is another one")]


class PromotionJournal:
    """The file, for its one writer. `path` None keeps the lines in this object only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self.entries: list[Entry] = []

    def open(self) -> None:
        """Read what is there. A torn last line is cut: what it promised was never published.

        Raises JournalError when the chain is broken.
        """
        if self._path is None:
            return
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        self.entries, faults = read_chain(whole)
        if faults:
            raise JournalError(
                f"the journal of promotions {self._path} is damaged at record {faults[0].entry} "
                f"({faults[0].what}): see perpetune ledger verify"
            )
        if whole != data:
            os.truncate(self._path, len(whole))
        self._lines = whole.split(b"\n")[:-1]

    @property
    def head(self) -> str | None:
        """The digest of the last line; None while there is none."""
        return digest_of(self._lines[-1]) if self._lines else None

    def append(self, entry: Entry) -> None:
        """Put an entry at the end, with its number and the link to the line before, on the disk.

        Raises TroubleError when it isn't there for certain; then it isn't in `entries` either.
        """
        linked = msgspec.structs.replace(entry, entry=len(self._lines) + 1, before=self.head)
        line = line_of(linked)
        if self._path is not None:
            self._write(self._path, line + b"\n")
        self._lines.append(line)
        self.entries.append(linked)

    def _write(self, path: Path, line: bytes) -> None:
        size = sum(len(known) + 1 for known in self._lines)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.truncate(size)  # what an earlier write that failed may have left
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            why = error.strerror or str(error)
            raise TroubleError(f"the journal {path} can't be written: {why}") from error
