import errno
import shutil
from pathlib import Path

import pytest

from services.local import run_folder
from services.local.run_folder import RunFolder, RunFolderError, create, find, suggest


def test_a_run_is_found_by_its_name_its_path_and_its_campaign(tmp_path):
    made = create(tmp_path / "runs" / "here", "single-1")
    (made.broker / "jetstream").mkdir(parents=True)
    create(tmp_path / "runs" / "later", "single-2")  # its broker never started

    for name in ("here", str(made.path), "single-1", None):
        assert find(name, tmp_path / "runs").path == made.path


def test_an_unknown_campaign_suggests_the_close_ones(tmp_path):
    create(tmp_path / "single-20261130", "single-20261130")

    with pytest.raises(RunFolderError, match="did you mean single-20261130"):
        find("single-20261103", tmp_path)


def test_no_suggestion_where_nothing_is_close():
    assert suggest("zzz", ["single-1"]) == "there are single-1"
    assert suggest("zzz", []) == "there are none yet"


def test_only_one_process_holds_a_run_folder(tmp_path):
    folder = create(tmp_path / "run", "single-1")

    with folder.held():
        folder.announce("nats://127.0.0.1:4222")
        assert folder.live_url() == "nats://127.0.0.1:4222"
        with pytest.raises(RunFolderError, match="in use by another"), folder.held():
            pass

    assert folder.live_url() is None
    with folder.held():
        assert folder.live_url() is None


def test_an_address_left_by_a_killed_process_is_not_believed(tmp_path):
    folder = create(tmp_path / "run", "single-1")
    folder.announce("nats://127.0.0.1:4222")

    assert folder.live_url() is None


def test_a_full_disk_is_refused_before_anything_starts(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=5_000_000)
    monkeypatch.setattr(run_folder.shutil, "disk_usage", lambda path: usage)

    with pytest.raises(RunFolderError, match="is full: 5 MB free"):
        create(tmp_path / "run", "single-1")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EROFS, "the file system is read-only"),
        (errno.EACCES, "permission denied"),
        (errno.ENOSPC, "the disk is full"),
    ],
)
def test_a_folder_that_cannot_be_written_says_why(tmp_path, monkeypatch, number, said):
    def refuse(*_args, **_more):
        raise OSError(number, "no")

    monkeypatch.setattr(Path, "mkdir", refuse)

    with pytest.raises(RunFolderError, match=f"{said}; give another one with --run DIR"):
        create(tmp_path / "run", "single-1")


def test_a_folder_with_a_run_is_never_started_over(tmp_path):
    create(tmp_path / "run", "single-1")
    (tmp_path / "run" / "broker" / "jetstream").mkdir(parents=True)

    with pytest.raises(RunFolderError, match="already holds a run"):
        create(tmp_path / "run", "single-2")


def test_a_damaged_marker_leaves_the_folders_own_name(tmp_path):
    folder = create(tmp_path / "run", "single-1")
    (folder.path / "campaign.json").write_text("{")

    assert RunFolder(folder.path).campaign == "run"
