"""Landlock: an allow-list of files for this process and its children, as far as the kernel goes."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from . import syscalls

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_BASE = (1 << 13) - 1  # every right of ABI 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_NET_ALL = 3  # bind and connect TCP
_SCOPE_ALL = 3  # abstract UNIX sockets and signals
_RULE_PATH_BENEATH = 1


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    try:
        return syscalls.call(
            syscalls.SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1)
        )
    except OSError:
        return 0


def restrict(readable: Iterable[str], writable: Iterable[str]) -> int:
    """Allow reading and executing below `readable`, everything below `writable`, nothing else.

    Needs no_new_privs. Returns the ABI in force; 0 means that the kernel has no Landlock.
    """
    version = abi()
    if version == 0:
        return 0
    handled = _BASE
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        handled |= right if version >= since else 0
    ruleset = _Ruleset(handled, _NET_ALL if version >= 4 else 0, _SCOPE_ALL if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    descriptor = syscalls.call(
        syscalls.SYS_LANDLOCK_CREATE,
        ctypes.byref(ruleset),
        ctypes.c_size_t(size),
        ctypes.c_uint(0),
    )
    for path in readable:
        _allow(descriptor, path, _READ & handled)
    for path in writable:
        _allow(descriptor, path, handled)
    syscalls.call(syscalls.SYS_LANDLOCK_RESTRICT, ctypes.c_int(descriptor), ctypes.c_uint(0))
    os.close(descriptor)
    return version


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_ONLY
        rule = _Beneath(rights, descriptor)
        syscalls.call(
            syscalls.SYS_LANDLOCK_ADD,
            ctypes.c_int(ruleset),
            ctypes.c_int(_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint(0),
        )
    finally:
        os.close(descriptor)
