"""Small facts about processes that more than one part needs."""

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded before any fork, as a child must not load it


def die_with_parent(nice: int = 0) -> Callable[[], None]:
    """A `preexec_fn`: the child is killed when the thread that started it ends, kill -9 included.

    It is not inherited by the child's own children: each level has to ask for it. `nice` lowers the
    child's priority by so much.
    """
    parent = os.getpid()

    def before_exec() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)
        if nice:
            os.nice(nice)

    return before_exec


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process (this one by default). Raises OSError when it is gone."""
    pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
