"""How fast this machine's memory can be read now: what the physical floor is held against.

A process of its own reads memory that no cache can hold, on huge pages where there are any, with a
thread a core: C's memcmp, which ctypes calls without the interpreter's lock. The best of a few
passes counts, because the floor must be a bound. Whoever asks sees to it that nobody else runs.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import threading
import time

BYTES = 256 * 1024 * 1024
PASSES = 5
LIMIT_S = 10.0
FRESH_S = 60.0  # bandwidth drifts by the hour


class Bandwidth:
    """The last figure, taken again once it is a minute old."""

    def __init__(self) -> None:
        self._bytes_s: int | None = None
        self._taken_s = 0.0

    def bytes_s(self) -> int | None:
        """Bytes read in a second by all cores together; None where it can't be measured."""
        now_s = time.monotonic()
        if self._bytes_s is None or now_s - self._taken_s > FRESH_S:
            self._bytes_s, self._taken_s = _ask(), now_s
        return self._bytes_s


def _ask() -> int | None:
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout.strip()
    return int(said) if done.returncode == 0 and said.isdigit() else None


def read_bytes_s(size: int = BYTES, passes: int = PASSES) -> int:
    """Read `size` bytes `passes` times with a thread a core. Bytes a second of the best pass."""
    threads = len(os.sched_getaffinity(0))
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.memset(begin, 1, size)
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    share = size // threads
    best_s = min(_pass_s(compare, begin, share, threads) for _ in range(passes))
    return int(share * threads / best_s)


def _pass_s(compare: ctypes._NamedFuncPointer, begin: int, share: int, threads: int) -> float:
    """Seconds in which all threads read their share, from the moment they all may begin."""
    barrier = threading.Barrier(threads + 1)

    def read(place: int) -> None:
        barrier.wait()
        compare(place, place, share)

    readers = [threading.Thread(target=read, args=(begin + i * share,)) for i in range(threads)]
    for reader in readers:
        reader.start()
    barrier.wait()
    began_s = time.perf_counter()
    for reader in readers:
        reader.join()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    print(read_bytes_s())
