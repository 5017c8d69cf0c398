"""A trial's processes from outside: census, freezing, processor time, memory, and their end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
# Between two looks: a thread needs a core, maybe this one, to take its stop signal.
YIELD_S = 0.00002


@dataclass(frozen=True)
class Usage:
    """Of a whole tree, summed over its living threads. Nanoseconds."""

    cpu_ns: int
    waited_ns: int


@dataclass(frozen=True)
class Stopped:
    """A tree that was sent the stop signal; `still` if all of it was then seen to stand still.

    `threads` are folders of `/proc`, complete only for a tree that stands still.
    """

    pids: list[int]
    threads: list[str]
    still: bool


def wake_promptly() -> None:
    """Let this thread run as soon as it has something to do, and its short sleeps end on time.

    It is what stops the clock and the engines: behind an engine's own threads it would come late
    by a time slice, a fifth of a token. Where that isn't allowed, turns are only noisier.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{threading.get_native_id()}/timerslack_ns").write_text("1")
    with contextlib.suppress(PermissionError):
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))


def tree(pid: int, at_most: int | None = None) -> list[int]:
    """`pid` and all its living descendants (or only the first `at_most` found)."""
    found: list[int] = []
    queue = [pid]
    while queue and (at_most is None or len(found) < at_most):
        current = queue.pop()
        threads = _threads(current)
        if threads:
            found.append(current)
        for thread in threads:
            queue += [int(child) for child in _read(f"{thread}/children").split()]
    return found


def halt(pids: Sequence[int]) -> None:
    """Send the stop signal to each; who is new since the census is left to `freeze`."""
    for pid in pids:
        _signal(pid, signal.SIGSTOP)


def freeze(pid: int, halted: Sequence[int] = (), within_s: float = 1.0) -> Stopped:
    """Stop the whole tree and see that it stands still.

    `halted` were sent the signal a moment ago. Only who stands still can't hide anybody, so a
    census counts when everyone it finds had been seen to stand still before it began.
    """
    known = list(halted)
    if not known:
        known = tree(pid)
        halt(known)
    deadline_s = time.monotonic() + within_s
    while True:
        threads = _stopped_threads(known)
        if threads is not None:
            members = tree(pid)
            newcomers = [process for process in members if process not in known]
            if not newcomers:
                return Stopped(members, threads, still=True)
            halt(newcomers)
            known += newcomers
        if time.monotonic() > deadline_s:
            halt(members := tree(pid))
            return Stopped(members, [], still=False)
        time.sleep(YIELD_S)


def thaw(pid: int) -> None:
    """Let the whole tree run again."""
    wake(tree(pid))


def wake(pids: Sequence[int]) -> None:
    """Let these run again, children first, so that none misses its parent's news."""
    for process in reversed(pids):
        _signal(process, signal.SIGCONT)


def usage(pids: Sequence[int]) -> Usage:
    """Processor time and run-queue wait of these processes' threads so far."""
    return usage_of([thread for pid in pids for thread in _threads(pid)])


def usage_of(threads: Sequence[str]) -> Usage:
    """The same of these threads."""
    cpu_ns = waited_ns = 0
    for thread in threads:
        numbers = _read(f"{thread}/schedstat").split()
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


@dataclass(frozen=True)
class Machine:
    """What all cores did until `at_ns` (monotonic), in nanoseconds since the machine started.

    `steal_ns` was taken by the hypervisor. The kernel counts both in hundredths of a second.
    """

    at_ns: int
    idle_ns: int
    steal_ns: int

    def stolen_ns(self, later: Machine) -> int:
        """What the hypervisor took until `later`."""
        return max(0, later.steal_ns - self.steal_ns)

    def others_ns(self, later: Machine, known_ns: int) -> int:
        """What processes had until `later`, but for `known_ns` of it: others' processor time."""
        wall_ns, idle_ns = later.at_ns - self.at_ns, later.idle_ns - self.idle_ns
        return max(0, CORES * wall_ns - max(0, idle_ns) - known_ns)


def machine() -> Machine:
    """Where the machine's clocks stand; one that doesn't tell was never idle."""
    fields = _read("/proc/stat").split(b"\n", 1)[0].split()
    idle, steal = (int(fields[4]) + int(fields[5]), int(fields[8])) if len(fields) > 8 else (0, 0)
    return Machine(time.monotonic_ns(), idle * _TICK_NS, steal * _TICK_NS)


def alive(pid: int) -> bool:
    """Whether the process exists and isn't a zombie."""
    return _state(f"/proc/{pid}/stat") not in (b"", b"Z", b"X")


def _stopped_threads(pids: Sequence[int]) -> list[str] | None:
    """Their threads, each stopped or dead; None: one runs. A stop signal takes effect late."""
    found: list[str] = []
    for pid in pids:
        for thread in _threads(pid):
            if _state(f"{thread}/stat") not in b"TtZX":
                return None
            found.append(thread)
    return found


def _threads(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _state(stat: str) -> bytes:
    """One letter; nothing for who is gone."""
    return _read(stat).rpartition(b")")[2][1:2]


def kill(pid: int, within_s: float = 5.0) -> bool:
    """End the tree and see that it is gone. Killing pid 1 of a namespace ends everyone in it."""
    members = tree(pid)
    for process in members:
        _signal(process, signal.SIGKILL)
    deadline_s = time.monotonic() + within_s
    return all(_ended(process, deadline_s) for process in members)


def _ended(pid: int, deadline_s: float) -> bool:
    """Wait for the end of a process, its parent's notice of it not included."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended, _, _ = select.select([file], [], [], max(0.0, deadline_s - time.monotonic()))
    finally:
        os.close(file)
    return bool(ended)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _read(path: str) -> bytes:
    """A small file of `/proc`, in one read; nothing for who is gone or isn't ours to see."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
    try:
        return os.read(file, 1 << 16)
    except ProcessLookupError:
        return b""
    finally:
        os.close(file)
