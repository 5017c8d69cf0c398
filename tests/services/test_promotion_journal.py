"""The journal of promotions: every kind of damage is found, and said where."""

import msgspec
import pytest

from services.errors import TroubleError
from services.promotions import Entry, JournalError, PromotionJournal, line_of, read_chain


def entry(number: int) -> Entry:
    return Entry(
        entry=0,
        before=None,
        kind="release_promoted",
        at_s=float(number),
        campaign="demo",
        entity="release",
        id=f"demo-{number}",
        event=f"{number:064x}",
        release=f"r{number}",
    )


@pytest.fixture
def journal(tmp_path):
    made = PromotionJournal(tmp_path / "run" / "promotions.journal")
    made.open()
    for number in range(4):
        made.append(entry(number))
    return tmp_path / "run" / "promotions.journal"


def test_what_was_written_is_read_again_by_the_next_process(journal):
    again = PromotionJournal(journal)
    again.open()
    again.append(entry(4))

    entries, faults = read_chain(journal.read_bytes())

    assert faults == []
    assert [one.id for one in entries] == [f"demo-{number}" for number in range(5)]
    assert [one.entry for one in entries] == [1, 2, 3, 4, 5]
    assert entries[0].before is None


def test_a_change_of_any_byte_is_found_in_its_own_record_or_at_its_end(journal):
    data = journal.read_bytes()
    ends = [place for place, byte in enumerate(data) if byte == ord("\n")]

    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x01
        _, faults = read_chain(bytes(changed))
        record = sum(end < place for end in ends) + 1
        assert faults, f"byte {place}"
        assert faults[0].entry in (record, record + 1), f"byte {place}: {faults}"


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_record_that_is_missing_is_found_at_the_one_after_it(journal, gone):
    lines = journal.read_bytes().splitlines(keepends=True)

    _, faults = read_chain(b"".join(lines[:gone] + lines[gone + 1 :]))

    assert [fault.entry for fault in faults] == [gone + 2]
    assert "a record is missing" in faults[0].what


def test_two_records_that_changed_places_are_found(journal):
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[1], lines[2] = lines[2], lines[1]

    _, faults = read_chain(b"".join(lines))

    assert {fault.entry for fault in faults} == {2, 3, 4}


def test_a_record_written_anew_with_a_fitting_digest_breaks_the_one_after_it(journal):
    lines = journal.read_bytes().splitlines()
    entries, _ = read_chain(journal.read_bytes())
    lines[1] = line_of(msgspec.structs.replace(entries[1], release="rX"))

    _, faults = read_chain(b"\n".join(lines) + b"\n")

    assert [(fault.entry, "digest is another" in fault.what) for fault in faults] == [(3, True)]


def test_a_torn_last_line_is_a_fault_until_the_next_writer_cuts_it(journal):
    whole = journal.read_bytes()
    journal.write_bytes(whole + line_of(entry(9))[:100])
    assert [fault.entry for fault in read_chain(journal.read_bytes())[1]] == [5]

    PromotionJournal(journal).open()

    assert journal.read_bytes() == whole


def test_nothing_is_promoted_on_a_damaged_journal(journal):
    journal.write_bytes(journal.read_bytes().replace(b'"r1"', b'"r7"'))

    with pytest.raises(JournalError, match="damaged at record 2"):
        PromotionJournal(journal).open()


def test_a_line_that_cannot_be_written_is_trouble_and_is_not_remembered(tmp_path):
    (tmp_path / "file").write_text("")
    made = PromotionJournal(tmp_path / "file" / "promotions.journal")

    with pytest.raises(TroubleError, match="can't be written"):
        made.append(entry(0))

    assert made.entries == []
