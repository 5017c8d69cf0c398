"""`perpetune ledger verify` over a real broker's store, a journal, blobs, each damaged."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from journaled_campaign import write
from protos import events as e
from recorded_campaign import CAMPAIGN, finished
from services.blobs import DirectoryBlobs
from services.local.run_folder import RunFolder, create
from services.local.system import open_system
from services.promotions import PromotionJournal


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A run as a scheduler leaves it; tests damage copies."""
    folder = create(tmp_path_factory.mktemp("original") / CAMPAIGN, CAMPAIGN)
    recording = finished(DirectoryBlobs(folder.blobs))

    async def main() -> None:
        async with open_system(folder, rooms=()) as system:
            await write(recording, system.ports, PromotionJournal(folder.journal))

    asyncio.run(main())
    return folder.path


@pytest.fixture
def run(original, door) -> RunFolder:
    shutil.copytree(original, door.cwd / "runs" / CAMPAIGN)
    return RunFolder(door.cwd / "runs" / CAMPAIGN)


def verify(door, *more: str) -> tuple[int, dict]:
    done = door("ledger", "verify", CAMPAIGN, *more)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_an_untouched_run_has_no_fault_and_its_noted_head_is_found_again(door, run):
    code, said = verify(door)
    assert (code, said["ok"], said["records"], said["releases"]) == (0, True, 3, 2)

    assert verify(door, "--head", said["head"])[0] == 0
    code, said = verify(door, "--head", "0" * 64)
    assert (code, len(said["faults"])) == (1, 1)


@pytest.mark.parametrize("record", [1, 2, 3])
def test_a_changed_byte_of_the_journal_is_found_in_its_record(door, run, record):
    lines = run.journal.read_bytes().splitlines(keepends=True)
    middle = len(lines[record - 1]) // 2
    changed = bytearray(lines[record - 1])
    changed[middle] ^= 0x04
    run.journal.write_bytes(b"".join([*lines[: record - 1], bytes(changed), *lines[record:]]))

    code, said = verify(door)

    assert code == 1
    assert {"record": record, "what": "was changed: its bytes have another digest"} in said[
        "faults"
    ]


@pytest.mark.parametrize("record", [1, 2, 3])
def test_a_missing_record_is_found(door, run, record):
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(lines[: record - 1] + lines[record:]))

    code, said = verify(door)

    assert code == 1
    what = " ".join(fault["what"] for fault in said["faults"])
    assert "the journal has no record of it" in what
    assert ("missing between them" in what) == (record < 3)


def test_a_record_that_the_ledger_never_had_is_found(door, run):
    journal = PromotionJournal(run.journal)
    journal.open()
    journal.append(journal.entries[1].__class__(**forged(journal)))

    code, said = verify(door)

    assert code == 1
    assert [f["record"] for f in said["faults"] if "ledger doesn't have" in f["what"]] == [4]


def forged(journal: PromotionJournal) -> dict:
    last = journal.entries[-1]
    return {
        **{name: getattr(journal.entries[1], name) for name in last.__struct_fields__},
        "id": "forged-3",
        "ledger_from": last.ledger_upto + 1,
    }


def test_a_missing_journal_is_one_fault(door, run):
    run.journal.unlink()

    code, said = verify(door)

    assert (code, len(said["faults"])) == (1, 1)
    assert "there is no journal" in said["faults"][0]["what"]


def test_a_changed_byte_in_the_brokers_store_is_found(door, run):
    found = run.journal.read_bytes()
    release = json.loads(found.splitlines()[1][65:])["release"]
    (block,) = (
        p for p in (run.broker / "jetstream").rglob("*.blk") if release.encode() in p.read_bytes()
    )
    data = block.read_bytes()
    at = data.index(b'"number":2')
    block.write_bytes(data[: at + 9] + b"7" + data[at + 10 :])

    code, said = verify(door)

    assert code == 1
    assert any(fault["record"] == 2 for fault in said["faults"])


def test_evidence_that_is_damaged_or_gone_is_found(door, run):
    blobs = DirectoryBlobs(run.blobs)
    promoted = next(r.event for r in finished().events if isinstance(r.event, e.ReleasePromoted))
    evidence = promoted.trials[0]
    ended = next(
        r.event
        for r in finished().events
        if isinstance(r.event, e.TrialEnded) and r.event.verdict.trial == evidence
    )
    place = blobs.path(ended.verdict.evidence)
    place.chmod(0o644)
    place.write_bytes(place.read_bytes()[:-1] + b"]")

    code, said = verify(door)

    assert code == 1
    assert "is damaged" in said["faults"][0]["what"]
