"""Run folders: `runs/<campaign>/`, one campaign each, and who holds one open.

broker/       the ledger's store: the truth
blobs/        sources, evidence, tokenizers, by digest
traces/       spans, one JSONL file a process
logs/         one file a room
promotions.journal   what was put into service and why, hash-chained, beside the ledger
live.json     the broker's address while somebody holds `lock`
summary.json, report.html
"""

import contextlib
import difflib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.errors import PerpetuneError
from services.promotions import JOURNAL

RUNS = Path("runs")
MIN_FREE_BYTES = 200_000_000  # a campaign's store, evidence and logs, with room to end cleanly


class RunFolderError(PerpetuneError):
    """A run folder can't be made, found or held; one line that says what to do."""


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def campaign(self) -> str:
        """The campaign's name as the folder records it (its own name for a folder without)."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(json.loads((self.path / "campaign.json").read_text())["campaign"])
        return self.path.name

    @property
    def broker(self) -> Path:
        return self.path / "broker"

    @property
    def blobs(self) -> Path:
        return self.path / "blobs"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    def has_ledger(self) -> bool:
        """Whether a broker ever ran here: without, there is nothing to read or to lose."""
        return (self.broker / "jetstream").is_dir()

    def live_url(self) -> str | None:
        """The address of the broker that now runs on this folder, or None when nobody holds it."""
        if self._free():
            return None
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(json.loads((self.path / "live.json").read_text())["url"])
        return None

    def announce(self, url: str) -> None:
        """Write down where the broker is. Only the holder of the folder does."""
        try:
            text = json.dumps({"url": url, "pid": os.getpid()}) + "\n"
            (self.path / "live.json").write_text(text)
        except OSError as error:
            raise RunFolderError(_not_writable(self.path, error)) from error

    def check_writable(self) -> None:
        """Raise RunFolderError when the folder can't be written: its broker couldn't run on it."""
        try:
            (self.path / "lock").open("a").close()
        except OSError as error:
            raise RunFolderError(_not_writable(self.path, error)) from error

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder: one broker at a time runs on a store. Raises RunFolderError."""
        self.check_writable()
        with (self.path / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunFolderError(
                    f"{self.path} is in use by another perpetune; "
                    f"watch it with: perpetune status {self.path}"
                ) from error
            try:
                yield
            finally:
                (self.path / "live.json").unlink(missing_ok=True)

    def _free(self) -> bool:
        try:
            with (self.path / "lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


def create(path: Path, campaign: str) -> RunFolder:
    """Make a new run folder. Raises RunFolderError: it exists, can't be written, or no space."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if RunFolder(path).has_ledger():
            raise RunFolderError(
                f"{path} already holds a run; resume it with --resume {path}, "
                "or give another folder with --run DIR"
            )
        for part in ("blobs", "traces", "logs"):
            (path / part).mkdir(exist_ok=True)
        (path / "campaign.json").write_text(json.dumps({"campaign": campaign}) + "\n")
    except OSError as error:
        raise RunFolderError(_cannot_write(path, error)) from error
    check_space(path)
    return RunFolder(path)


def check_space(path: Path) -> None:
    """Raise RunFolderError when the disk under `path` can't take a campaign."""
    free = free_bytes(path)
    if free < MIN_FREE_BYTES:
        raise RunFolderError(
            f"the disk of {path} is full: {free // 1_000_000} MB free, a campaign needs "
            f"{MIN_FREE_BYTES // 1_000_000} MB; free some, or give another folder with --run DIR"
        )


def free_bytes(path: Path) -> int:
    """What is left on the disk under a path."""
    return shutil.disk_usage(path).free


def find(name: str | None, runs: Path = RUNS) -> RunFolder:
    """The run folder of a campaign name or path; the newest run without one.

    Raises RunFolderError with close names when there is none.
    """
    known = listing(runs)
    if name is None:
        held = [folder for folder in known if folder.has_ledger()]
        if not held:
            raise RunFolderError(f"no campaign in {runs}/ yet; start one with: perpetune tune")
        return held[-1]
    for path in (runs / name, Path(name)):
        if (path / "campaign.json").is_file():
            return RunFolder(path)
    for folder in known:
        if folder.campaign == name:
            return folder
    names = [folder.path.name for folder in known]
    raise RunFolderError(f"no campaign {name!r} in {runs}/; {suggest(name, names)}")


def listing(runs: Path = RUNS) -> list[RunFolder]:
    """Every run folder, oldest first."""
    markers = [path for path in runs.glob("*/campaign.json") if path.is_file()]
    return [RunFolder(path.parent) for path in sorted(markers, key=_modified)]


def suggest(name: str, known: list[str]) -> str:
    """Which of the known names may have been meant, as the end of an error line."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"there are {', '.join(known[-5:])}" if known else "there are none yet"


def _modified(path: Path) -> tuple[int, str]:
    return path.stat().st_mtime_ns, path.parent.name


def _not_writable(path: Path, error: OSError) -> str:
    remedy = "free some" if error.errno == errno.ENOSPC else "make it writable"
    return (
        f"cannot write the run folder {path}, which its ledger needs even to be read: "
        f"{_why(error)}; {remedy}, or give a copy of it elsewhere"
    )


def _cannot_write(path: Path, error: OSError) -> str:
    return f"cannot write the run folder {path}: {_why(error)}; give another one with --run DIR"


def _why(error: OSError) -> str:
    return {
        errno.EROFS: "the file system is read-only",
        errno.EACCES: "permission denied",
        errno.ENOSPC: "the disk is full",
        errno.ENOTDIR: "a part of the path is a file",
        errno.EEXIST: "it is a file",
    }.get(error.errno or 0, error.strerror or str(error))
