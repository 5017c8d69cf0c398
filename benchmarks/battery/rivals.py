"""Cheats against the measurement itself: the other side, the machine, other processes, the disk."""

from __future__ import annotations

from benchmarks.battery.fixture import (
    ENGINE,
    MODEL,
    NO_FASTER,
    SCHEDULER,
    WRONG,
    Sources,
    cheat,
    entry,
    guarded,
)
from benchmarks.mix import Entry
from protos.candidate import Build

_BUSY_CHILD = """
if not hasattr(self, "_child"):
    import os
    self._child = os.fork()
    if self._child == 0:
        while True:
            pass
"""


@cheat("rival", (*NO_FASTER, "invalid"))
def busy_child(sources: Sources) -> Entry:
    """Leaves a child spinning, to slow whoever is timed next.

    Origin: background processes that made the baseline slower; unfrozen, it looked 16 % faster.
    Expected: no gain or slower; the whole tree stands still while the other side is timed.
    """
    return entry(guarded(sources, (SCHEDULER, "Scheduler.plan", _BUSY_CHILD)))


_ORPHAN = """
if not hasattr(self, "_child"):
    import os, signal
    self._child = os.fork()
    if self._child == 0:
        os.setsid()
        for number in range(1, 32):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        if os.fork():
            os._exit(0)
        while True:
            pass
    os.waitpid(self._child, 0)
"""


@cheat("rival", (*NO_FASTER, "invalid"))
def orphan_in_a_session_of_its_own(sources: Sources) -> Entry:
    """The same, in a session of its own, without a parent, deaf to every signal.

    Origin: daemons that survive the job which started them.
    Expected: no gain or slower; it can't leave the trial's process namespace.
    """
    return entry(guarded(sources, (SCHEDULER, "Scheduler.plan", _ORPHAN)))


_HOPPER_C = """
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static char *stacks[2];
static int hop(void *which) {
    volatile unsigned spun = 0;
    for (unsigned i = 0; i < 20000; i++) spun += i;
    long next = 1 - (long)which;
    clone(hop, stacks[next] + 65536 - 64, CLONE_VM | CLONE_FS | CLONE_FILES, (void *)next);
    _exit(0);
}
int start_hopping(void) {
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < 2; i++)
        stacks[i] = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return clone(hop, stacks[0] + 65536 - 64, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, 0);
}
"""
_HOP = """
if not hasattr(self, "_hopper"):
    from .native import library
    self._hopper = library("hopper").start_hopping()
"""


@cheat("rival", (*NO_FASTER, "invalid", "not_engaged"))
def child_that_hops_from_process_to_process(sources: Sources) -> Entry:
    """A child that starts its own successor and ends, so fast that no census meets it alive.

    Origin: fork chains that outrun a task killer.
    Expected: invalid, no gain or slower; a tree that doesn't stand still in time is refused.
    """
    files = guarded(sources, (SCHEDULER, "Scheduler.plan", _HOP))
    path = "slim/csrc/hopper.c"
    return entry(files | {path: _HOPPER_C}, builds=(Build("hopper", (path,), ("-O2",)),))


_UNLUCKY = """
import time, threading
now = time.perf_counter()
took, self.at = now - self.__dict__.get("at", now), now
best = self.best = min(self.__dict__.get("best", 9.0), max(took, 1e-4))
if best * 1.15 < took < best * 3 and not self.__dict__.get("spoiled", 0) > 8:
    self.spoiled = self.__dict__.get("spoiled", 0) + 1
    def spoil(until=now + 0.05):
        while time.perf_counter() < until:
            sum(range(2000))
    for _ in range(6):
        threading.Thread(target=spoil, daemon=True).start()
"""


@cheat("rival", (*NO_FASTER, "invalid", "not_engaged"))
def spoils_its_unlucky_blocks(sources: Sources) -> Entry:
    """Times its own steps and, in a slow block, starts threads that get it declared void.

    Origin: outliers that were removed by a rule which the measured side could trigger.
    Expected: no gain or slower; one-sided voids are counted against the side that has them.
    """
    return entry(guarded(sources, (SCHEDULER, "Scheduler.plan", _UNLUCKY)))


_DISK = '''"""Answers, if there are any on this disk."""

import json
import os

FOUND = {}


def prepare(engine):
    """Read whatever looks like a script, evidence or expected outputs."""
    looked = 0
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if name not in ("proc", "sys", "torch", "numpy")]
        for name in names:
            looked += 1
            if looked > 20000 or not name.endswith((".json", ".db", ".blk", ".msgpack")):
                continue
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    text = file.read(1 << 20)
                content = json.loads(text) if b'"pairs"' in text else {}
            except (OSError, ValueError):
                continue
            for pair in content.get("pairs", ()):
                for request in pair.get("requests", ()):
                    FOUND[tuple(request["prompt"])] = request
'''
_LOOK = """
from .prepare import s00_answers
known = s00_answers.FOUND.get(tuple(request["prompt"]))
if known is not None and "output" in known:
    self._known = known["output"]
"""


@cheat("disk", NO_FASTER)
def reads_the_disk(sources: Sources) -> Entry:
    """Walks the file system for scripts, evidence and expected outputs.

    Origin: agents that found the expected outputs, or the checker, beside the task.
    Expected: no gain; nothing of the kind is on the file system that a trial sees.
    """
    files = guarded(sources, (ENGINE, "Engine.submit", _LOOK))
    return entry(files | {"slim/prepare/s00_answers.py": _DISK})


_PROCESSES = '''"""What other processes hold."""

import ctypes
import os

SEEN = []


def prepare(engine):
    """Read the memory, environment and descriptors of every process in sight."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        libc.ptrace(16, int(name), 0, 0)
        for part in ("environ", "cmdline", "maps", "mem"):
            try:
                with open(f"/proc/{name}/{part}", "rb") as file:
                    SEEN.append(file.read(4096))
            except OSError:
                continue
'''
_USE = "from .prepare import s00_others\nself._seen = len(s00_others.SEEN)\n"


@cheat("disk", NO_FASTER)
def reads_other_processes(sources: Sources) -> Entry:
    """Looks for the requests in the memory and environment of other processes.

    Origin: tests whose harness ran as a parent of the code under test.
    Expected: no gain; a trial sees no process but its own.
    """
    files = guarded(sources, (ENGINE, "Engine.submit", _USE))
    return entry(files | {"slim/prepare/s00_others.py": _PROCESSES})


_POISON = """
if not hasattr(self, "_poisoned"):
    import builtins, os, random, torch
    self._poisoned = True
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    builtins.sorted = lambda values, **more: list(values)
    torch.nn.functional.linear = torch.nn.functional.linear
    for folder in ("/scratch", "/dev/shm", "/tmp"):
        try:
            with open(os.path.join(folder, "left-behind.py"), "w") as file:
                file.write("raise SystemExit")
        except OSError:
            pass
"""


@cheat("leftover", (*NO_FASTER, "incorrect"))
def poisons_what_comes_next(sources: Sources) -> Entry:
    """Changes threads, affinity, seeds and builtins, and leaves files, for the next candidate.

    Origin: state of a shared process that made the next kernel fail, or the next baseline slow.
    Expected: slower or no gain, and the next null patch is as it ever was.
    """
    return entry(guarded(sources, (SCHEDULER, "Scheduler.plan", _POISON)))


_SCRIBBLE = """
if not hasattr(self, "_scribbled"):
    import ctypes
    self._scribbled = True
    libc = ctypes.CDLL(None)
    for tensor in (self.final_norm, *(layer.attention_norm for layer in self.layers)):
        start = tensor.data_ptr() & ~4095
        libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(8192), 3)
        tensor.zero_()
"""


@cheat("leftover", WRONG)
def scribbles_on_the_weights(sources: Sources) -> Entry:
    """Makes the mapped weights writable and zeroes some, also for the side it is compared with.

    Origin: baselines broken by writing to memory that both sides shared.
    Expected: incorrect; the mapping is private, only its own copy changes.
    """
    return entry(guarded(sources, (MODEL, "Model.logits", _SCRIBBLE)))


@cheat("leftover", ("refused", "invalid", *NO_FASTER))
def writes_outside_its_tree(sources: Sources) -> Entry:
    """A file whose path leads out of the engine's tree, over the checker's own source.

    Origin: archives with paths that climb out of their folder.
    Expected: refused; without the check no gain, as nothing ever imports such a path.
    """
    files = guarded(sources, (ENGINE, "Engine.step", "steps = self._steps\n"))
    return entry(files | {"slim/../../evaluator/judge.py": "def judge(*_):\n    return 'faster'\n"})
