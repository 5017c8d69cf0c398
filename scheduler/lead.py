"""Only one scheduler leads. The lead is a file lock in the run's folder.

The kernel drops it with its holder, however that ends, so a waiting scheduler follows at once. Two
schedulers that share no file system aren't kept apart by it; what keeps them from harm is that
every event they write expects its entity's last sequence, and that a release number exists once.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO, Protocol


class Lead(Protocol):
    """Who may decide."""

    def take(self) -> bool:
        """Whether this process leads from now on (until it ends)."""


class Alone:
    """For a process that is known to be the only one."""

    def take(self) -> bool:
        return True


class FileLead:
    """The lead as a lock on a file, made if need be. Raises OSError where it can't be."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = path.open("a")

    def take(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
