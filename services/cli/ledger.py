"""`perpetune ledger verify [CAMPAIGN]`: is what was promoted what the evidence stands behind?"""

import argparse
import asyncio
import json
from collections.abc import Iterator

from protos import events as e
from services.audit_trail import Trail
from services.blobs import DirectoryBlobs
from services.errors import BlobError
from services.ledger import Recorded
from services.local.run_folder import RunFolder, find
from services.local.system import open_ledger
from services.promotions import Fault, digest_of, read_chain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`verify`, a campaign, and a head that somebody noted."""
    parser.add_argument("action", choices=("verify",), help="compare journal, ledger and blobs")
    parser.add_argument("campaign", nargs="?", help="name or run folder (default: the newest)")
    parser.add_argument(
        "--head", help="a digest noted earlier: the record that has it must still be there"
    )


def run(options: argparse.Namespace) -> int:
    """0: everything fits; 1: something was changed, is missing or is too much."""
    folder = find(options.campaign)
    data = folder.journal.read_bytes() if folder.journal.is_file() else b""
    entries, faults = read_chain(data)
    trail = Trail(entries, running=folder.live_url() is not None)
    ended = asyncio.run(_read(folder, trail))
    if data:
        faults += trail.faults()
    elif trail.published:
        faults.append(Fault(None, f"there is no journal: {folder.journal} is empty or missing"))
    faults += _blob_faults(DirectoryBlobs(folder.blobs), trail, ended)
    digests = [digest_of(line) for line in data.splitlines()]
    if options.head and options.head not in digests:
        faults.append(Fault(None, f"no record has the digest {options.head}: it was rewritten"))
    releases = [r for r in trail.published if isinstance(r.event, e.ReleasePromoted)]
    print(f"{folder.journal}: {len(entries)} records, {len(releases)} releases in the ledger")
    for fault in faults:
        print(f"record {fault.entry} {fault.what}" if fault.entry else fault.what)
    head = digests[-1] if digests else None
    print("nothing is wrong" if not faults else f"{len(faults)} faults")
    print(json.dumps(_figures(folder, len(entries), len(releases), head, faults)))
    return 1 if faults else 0


def _figures(
    folder: RunFolder, records: int, releases: int, head: str | None, faults: list[Fault]
) -> dict[str, object]:
    return {
        "campaign": folder.campaign,
        "records": records,
        "releases": releases,
        "head": head,
        "ok": not faults,
        "faults": [{"record": fault.entry, "what": fault.what} for fault in faults],
    }


async def _read(folder: RunFolder, trail: Trail) -> dict[str, e.TrialEnded]:
    """Feed the ledger to the trail; the endings by trial, for their evidence."""
    ended: dict[str, e.TrialEnded] = {}
    async with open_ledger(folder) as ports:
        async for recorded in ports.ledger.read():
            trail.take(recorded)
            if isinstance(recorded.event, e.TrialEnded):
                ended[recorded.event.verdict.trial] = recorded.event
    return ended


def _blob_faults(
    blobs: DirectoryBlobs, trail: Trail, ended: dict[str, e.TrialEnded]
) -> Iterator[Fault]:
    """What a release stands on or consists of must still be there, unchanged."""
    for recorded in trail.published:
        for digest, what in _needed(recorded, ended):
            try:
                blobs.get(digest)
            except BlobError as error:
                yield Fault(None, f"{what}: {error}")


def _needed(recorded: Recorded, ended: dict[str, e.TrialEnded]) -> Iterator[tuple[str, str]]:
    event = recorded.event
    if not isinstance(event, e.ReleasePromoted):
        return
    number = event.release.number
    for name, digest in {**event.release.files, **event.release.libraries}.items():
        yield digest, f"release {number}, {name}"
    for trial in event.trials:
        if trial in ended:
            yield ended[trial].verdict.evidence, f"release {number}, evidence of trial {trial}"
