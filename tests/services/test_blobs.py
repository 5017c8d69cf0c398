"""What every blob store does, and what the folder one does on a bad disk."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services.blobs import DirectoryBlobs, MemoryBlobs
from services.errors import BlobError

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


@pytest.fixture(params=["memory", "directory"])
def blobs(request, tmp_path):
    return MemoryBlobs() if request.param == "memory" else DirectoryBlobs(tmp_path / "blobs")


def test_a_blob_is_found_under_the_digest_of_its_bytes(blobs):
    assert blobs.put(b"hello") == HELLO
    assert blobs.get(HELLO) == b"hello"
    assert blobs.has(HELLO)


def test_storing_twice_is_storing_once(blobs):
    assert blobs.put(b"hello") == blobs.put(b"hello")
    assert blobs.get(HELLO) == b"hello"


def test_an_empty_blob_is_a_blob(blobs):
    assert blobs.get(blobs.put(b"")) == b""


def test_a_missing_blob_is_an_error_with_its_digest(blobs):
    assert not blobs.has(HELLO)
    with pytest.raises(BlobError, match=HELLO):
        blobs.get(HELLO)


@pytest.mark.parametrize("bad", ["", "../../etc/passwd", HELLO.upper(), HELLO[:-1], HELLO + "\n"])
def test_what_is_no_digest_never_becomes_a_path(blobs, bad):
    with pytest.raises(BlobError, match="no blob digest"):
        blobs.get(bad)
    with pytest.raises(BlobError, match="no blob digest"):
        blobs.has(bad)


def test_damage_is_seen_when_a_memory_blob_is_read():
    blobs = MemoryBlobs()
    blobs.damage(blobs.put(b"hello"), b"jello")
    with pytest.raises(BlobError, match="damaged"):
        blobs.get(HELLO)


def test_damage_is_seen_when_a_file_is_read(tmp_path):
    blobs = DirectoryBlobs(tmp_path)
    place = blobs.path(blobs.put(b"hello"))
    place.chmod(0o644)
    place.write_bytes(b"jello")
    with pytest.raises(BlobError, match="damaged"):
        blobs.get(HELLO)
    with pytest.raises(BlobError, match="damaged"):
        blobs.path(HELLO)


def test_processes_of_one_machine_share_the_folder(tmp_path):
    DirectoryBlobs(tmp_path).put(b"hello")
    assert DirectoryBlobs(tmp_path).get(HELLO) == b"hello"


def test_writers_at_once_leave_one_whole_file_and_no_rest(tmp_path):
    blobs = DirectoryBlobs(tmp_path)
    data = os.urandom(300_000)
    with ThreadPoolExecutor(8) as pool:
        digests = set(pool.map(lambda _: blobs.put(data), range(32)))
    (digest,) = digests
    assert blobs.get(digest) == data
    assert [path.name for path in Path(tmp_path).rglob("*") if path.is_file()] == [digest]


def test_a_file_is_stored_by_its_content(tmp_path):
    (tmp_path / "greeting").write_bytes(b"hello")
    blobs = DirectoryBlobs(tmp_path / "blobs")
    assert blobs.put_file(tmp_path / "greeting") == HELLO
    with pytest.raises(BlobError, match="can't be read"):
        blobs.put_file(tmp_path / "nothing")


def test_a_folder_that_can_not_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BlobError, match="can't be written"):
        DirectoryBlobs(tmp_path / "file" / "blobs").put(b"hello")
