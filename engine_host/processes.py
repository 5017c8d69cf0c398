"""A trial's processes from outside: census, freezing, processor time, memory, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
# Between two looks: a thread needs a core, maybe this one, to take its stop signal.
YIELD_S = 0.0001


@dataclass(frozen=True)
class Usage:
    """Of a whole tree, summed over its living threads. Nanoseconds."""

    cpu_ns: int
    waited_ns: int


def tree(pid: int, at_most: int | None = None) -> list[int]:
    """`pid` and all its living descendants (or only the first `at_most` found)."""
    found: list[int] = []
    queue = [pid]
    while queue and (at_most is None or len(found) < at_most):
        current = queue.pop()
        try:
            tasks = os.listdir(f"/proc/{current}/task")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append(current)
        for task in tasks:
            text = _read(f"/proc/{current}/task/{task}/children")
            queue += [int(child) for child in text.split()]
    return found


def halt(pids: list[int]) -> None:
    """Send the stop signal to each; who is new since the census is left to `freeze`."""
    for pid in pids:
        _signal(pid, signal.SIGSTOP)


def freeze(pid: int, halted: Sequence[int] = (), within_s: float = 1.0) -> list[int]:
    """Stop the whole tree and see that it stands still. Returns who was stopped.

    Repeats until a census finds nobody new; `halted` were sent the signal a moment ago and need no
    second one. Who was found to outrun it is told by `stands_still`.
    """
    stopped: set[int] = set(halted)
    deadline_s = time.monotonic() + within_s
    while True:
        members = tree(pid)
        for process in members:
            if process not in stopped:
                _signal(process, signal.SIGSTOP)
        if stopped.issuperset(members) and all(_stands_still(p) for p in members):
            return sorted(stopped)
        stopped.update(members)
        if time.monotonic() > deadline_s:
            return sorted(stopped)
        time.sleep(YIELD_S)


def thaw(pid: int) -> None:
    """Let the whole tree run again, children first, so that none misses its parent's news."""
    for process in reversed(tree(pid)):
        _signal(process, signal.SIGCONT)


def usage(pids: list[int]) -> Usage:
    """Processor time and run-queue wait of these processes' threads so far."""
    cpu_ns = waited_ns = 0
    for pid in pids:
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except (FileNotFoundError, ProcessLookupError):
            continue
        for task in tasks:
            numbers = _read(f"/proc/{pid}/task/{task}/schedstat").split()
            if len(numbers) >= 2:
                cpu_ns += int(numbers[0])
                waited_ns += int(numbers[1])
    return Usage(cpu_ns, waited_ns)


def resident_bytes(pids: list[int]) -> int:
    """Memory of these processes that isn't shared with others as a file."""
    total = 0
    for pid in pids:
        numbers = _read(f"/proc/{pid}/statm").split()
        if len(numbers) >= 3:
            total += (int(numbers[1]) - int(numbers[2])) * _PAGE_BYTES
    return total


def steal_ns() -> int:
    """Time the hypervisor took from this machine since it started, all cores."""
    fields = _read("/proc/stat").split("\n", 1)[0].split()
    return int(fields[8]) * _TICK_NS if len(fields) > 8 else 0


def alive(pid: int) -> bool:
    """Whether the process exists and isn't a zombie."""
    text = _read(f"/proc/{pid}/stat")
    return bool(text) and text.rpartition(")")[2].split()[0] not in ("Z", "X")


def stands_still(pids: list[int], pid: int) -> bool:
    """Whether the tree of `pid` holds nobody but `pids`, and each of its threads is stopped."""
    members = tree(pid)
    return set(pids).issuperset(members) and all(_stands_still(p) for p in members)


def _stands_still(pid: int) -> bool:
    """Whether every thread is stopped or dead: a stop signal takes effect a little later."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return True
    states = [_read(f"/proc/{pid}/task/{task}/stat").rpartition(")")[2].split() for task in tasks]
    return all(not state or state[0] in "TtZX" for state in states)


def kill(pid: int, within_s: float = 5.0) -> bool:
    """End the tree and see that it is gone. Killing pid 1 of a namespace ends everyone in it."""
    members = tree(pid)
    for process in members:
        _signal(process, signal.SIGKILL)
    deadline_s = time.monotonic() + within_s
    while any(alive(process) for process in members):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(YIELD_S)
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
