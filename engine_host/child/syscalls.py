"""The system calls that Python 3.11 has no names for, by ctypes; x86_64 and aarch64."""

from __future__ import annotations

import ctypes
import os
import platform

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_NEWTIME = 0x00000080

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
PR_SET_SECCOMP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 22, 47, 4

MACHINE = platform.machine()
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(MACHINE, -1)
SYS_CAPSET = {"x86_64": 126, "aarch64": 91}.get(MACHINE, -1)
SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_LIBC.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)


def call(number: int, *arguments: object) -> int:
    """A raw system call. Raises OSError with the call's errno."""
    return _checked(_LIBC.syscall(ctypes.c_long(number), *arguments), f"system call {number}")


def unshare(flags: int) -> None:
    _checked(_LIBC.unshare(ctypes.c_int(flags)), "unshare")


def setns(descriptor: int, kind: int) -> None:
    _checked(_LIBC.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), "setns")


def prctl(option: int, *arguments: object) -> int:
    padded = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    padded += [ctypes.c_ulong(0)] * (4 - len(padded))
    return _checked(_LIBC.prctl(ctypes.c_int(option), *padded), f"prctl {option}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    done = _LIBC.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        flags,
        options.encode() or None,
    )
    _checked(done, f"mount of {target}")


def umount(target: str, flags: int) -> None:
    _checked(_LIBC.umount2(target.encode(), ctypes.c_int(flags)), f"umount of {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def mount_attributes(target: str, attributes: int, *, recursive: bool) -> None:
    """Set mount attributes (read-only and the like) on a mount, with what is below it."""
    wanted = _MountAttributes(attributes, 0, 0, 0)
    call(
        SYS_MOUNT_SETATTR,
        ctypes.c_int(AT_FDCWD),
        ctypes.c_char_p(target.encode()),
        ctypes.c_uint(AT_RECURSIVE if recursive else 0),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )


def drop_capabilities() -> None:
    """Give up every capability, for this process and whatever it executes."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # EINVAL: past the last one this kernel knows; EPERM: none to give up
    try:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        if error.errno not in (22, 38):
            raise
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call(SYS_CAPSET, ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
