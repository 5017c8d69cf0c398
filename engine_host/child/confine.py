"""Confinement in two layers, both before any engine code runs.

A *view* is a root of its own that holds only named paths, read-only, in fresh user, mount, PID,
network, IPC and UTS namespaces; zygotes and cold trials start in one. A *trial* adds, after its
fork: pid 1 of another PID namespace, private /proc, /dev/shm and scratch, no capability, rlimits,
Landlock, seccomp.
"""

from __future__ import annotations

import os
import resource
import signal
from dataclasses import dataclass, field

from . import landlock, seccomp, syscalls
from .syscalls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
)

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
SCRATCH = "/scratch"
_WRITABLE = (SCRATCH, "/dev/shm")
_STAGING, _OLD = "/tmp", "/.old"
SCRATCH_BYTES = 512 * 1024 * 1024


class Unprotected(Exception):
    """This machine can't confine a trial; the message says what is missing and what to do."""


@dataclass(frozen=True)
class View:
    """The paths a child may see (each at its own place, read-only), and extra device nodes.

    `hidden` folders below them are shown empty, but for paths named further down. `moved` paths are
    shown at another place: pairs of where they are and where they appear.
    """

    paths: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()

    @property
    def readable(self) -> tuple[str, ...]:
        """Every path that a child may read, as it sees them."""
        return (*self.paths, *(place for _, place in self.moved))


@dataclass(frozen=True)
class Limits:
    """What one trial process may use at most."""

    memory_bytes: int = 6_000_000_000
    processes: int = 64
    file_bytes: int = SCRATCH_BYTES
    descriptors: int = 512


@dataclass
class Report:
    """Which layers are in force, for the host's record."""

    layers: dict[str, int | str | bool] = field(default_factory=dict)


def enter_view(view: View) -> None:
    """Become pid 1 of new namespaces whose root holds only the view. Returns in the new process.

    The calling process stays behind as its minder: it waits and exits with the same status.
    Raises Unprotected.
    """
    outer_uid, outer_gid = os.getuid(), os.getgid()
    spaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    try:
        syscalls.unshare(CLONE_NEWUSER | spaces)
    except OSError as error:
        if outer_uid != 0:
            raise _unprotected(error) from error
        try:
            syscalls.unshare(spaces)
        except OSError as second:
            raise _unprotected(second) from second
    else:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{outer_uid} {outer_uid} 1")
        _write("/proc/self/gid_map", f"{outer_gid} {outer_gid} 1")
    child = os.fork()
    if child:
        _mind(child)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _build_root(view)
    except OSError as error:
        raise _unprotected(error) from error


def _unprotected(error: OSError) -> Unprotected:
    return Unprotected(
        f"can't confine engine processes ({error.strerror}): allow user namespaces for this user, "
        "or run as root with CAP_SYS_ADMIN"
    )


def _mind(child: int) -> None:
    """Wait for the child and end as it ended; nothing of this process survives."""
    os.closerange(3, 4096)
    _, status = os.waitpid(child, 0)
    os._exit(min(os.waitstatus_to_exitcode(status) % 256, 255))


def _build_root(view: View) -> None:
    syscalls.mount("none", "/", None, MS_REC | MS_PRIVATE)
    syscalls.mount("tmpfs", _STAGING, "tmpfs", MS_NOSUID, "mode=755,size=4m")
    os.mkdir(_STAGING + _OLD)
    syscalls.call(syscalls.SYS_PIVOT_ROOT, _STAGING.encode(), (_STAGING + _OLD).encode())
    os.chdir("/")
    for path in sorted({*view.paths, *view.hidden}):  # an outer folder comes before what is in it
        if path in view.hidden:
            _cover(path)
        else:
            _bind(path, syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NODEV)
    for path, place in view.moved:
        _bind(path, syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NODEV, place)
    for path in view.hidden:
        syscalls.mount_attributes(path, syscalls.MOUNT_ATTR_RDONLY, recursive=False)
    for path in (*_DEVICES, *view.devices):
        _bind(path, 0)
    for path in ("/proc", *_WRITABLE):
        os.makedirs(path, exist_ok=True)
    if not os.path.exists("/tmp"):  # it exists where the view holds paths below it
        os.symlink(SCRATCH, "/tmp")
    _mount_proc()
    syscalls.umount(_OLD, syscalls.MNT_DETACH)
    os.rmdir(_OLD)
    for path in _WRITABLE:
        _mount_scratch(path)
    syscalls.mount_attributes("/", syscalls.MOUNT_ATTR_RDONLY, recursive=False)


def _cover(path: str) -> None:
    os.makedirs(path, exist_ok=True)
    syscalls.mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")


def _bind(path: str, attributes: int, place: str = "") -> None:
    """Show a path of the old root in the new one, at its own place unless another is named.

    What isn't there is left out.
    """
    source, path = _OLD + path, place or path
    if os.path.islink(source):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.readlink(source), path)
        return
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    elif os.path.exists(source):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o644))
    else:
        return
    syscalls.mount(source, path, None, MS_BIND | MS_REC)
    if attributes:
        syscalls.mount_attributes(path, attributes | syscalls.MOUNT_ATTR_NOSUID, recursive=True)


def _mount_proc() -> None:
    """This PID namespace's own /proc; an empty one where the machine doesn't allow that."""
    try:
        syscalls.mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError:
        syscalls.mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0")


def _mount_scratch(path: str) -> None:
    options = f"mode=1777,size={SCRATCH_BYTES}"
    syscalls.mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options)


def confine_zygote() -> None:
    """What a fork server can give up and still confine its forks (Landlock would forbid mounts).

    Its root, namespaces and network are those of the view; its capabilities count nowhere else.
    Raises Unprotected.
    """
    try:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if seccomp.supported():
            seccomp.install(may_fork_trials=True)
    except OSError as error:
        raise _unprotected(error) from error


def confine_trial(view: View, limits: Limits, *, own_spaces: bool) -> Report:
    """Give up everything a trial doesn't need, for good. Runs as pid 1 of its PID namespace.

    `own_spaces`: it already has mount, network and IPC namespaces of its own (a cold start).
    Raises Unprotected when a layer that must hold can't be put in force.
    """
    report = Report()
    try:
        if not own_spaces:
            syscalls.unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
            _mount_proc()
            for path in _WRITABLE:
                _mount_scratch(path)
        os.chdir(SCRATCH)
        _limit(limits)
        syscalls.drop_capabilities()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        readable = (*view.readable, "/proc")
        writable = (*_WRITABLE, *_DEVICES, *view.devices)
        report.layers["landlock"] = landlock.restrict(readable, writable)
        report.layers["seccomp"] = seccomp.supported()
        if seccomp.supported():
            seccomp.install()
    except OSError as error:
        raise _unprotected(error) from error
    return report


def _limit(limits: Limits) -> None:
    for kind, amount in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.descriptors),
        (resource.RLIMIT_NPROC, limits.processes * 8),  # counts threads; the host counts processes
    ):
        _, hard = resource.getrlimit(kind)
        bound = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(kind, (bound, bound))


def close_descriptors(keep: set[int]) -> None:
    """Close everything but `keep`; 0, 1 and 2 become /dev/null."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    if null > 2:
        os.close(null)
    last = 2
    for descriptor in sorted(keep):
        os.closerange(last + 1, descriptor)
        last = descriptor
    os.closerange(last + 1, 65536)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
