"""The seccomp filter of a trial: calls that no engine needs answer EPERM."""

from __future__ import annotations

import ctypes
import struct

from . import syscalls

# name -> number on x86_64, on aarch64 (None: it has no such call)
DENIED: dict[str, tuple[int, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "personality": (135, 92),
}
_FOR_ZYGOTES = frozenset({"mount", "umount2", "unshare", "setns"})
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NEW_NAMESPACE = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWCGROUP
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWNET
)
_AF_UNIX = 1
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _EACCES, _ENOSYS = 1, 13, 38
_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARG0 = 0, 4, 16
_X32 = 0x40000000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def supported() -> bool:
    return syscalls.MACHINE in _AUDIT_ARCH


def program(*, may_fork_trials: bool = False) -> bytes:
    """The filter as BPF instructions for this machine's architecture.

    `may_fork_trials`: leaves the calls with which a zygote gives its forks namespaces of their own.
    """
    column = 0 if syscalls.MACHINE == "x86_64" else 1
    out = [
        _ins(_LOAD, 0, 0, _ARCH),
        _ins(_JEQ, 1, 0, _AUDIT_ARCH[syscalls.MACHINE]),
        _ins(_RET, 0, 0, _KILL),
        _ins(_LOAD, 0, 0, _NR),
        _ins(_JGE, 0, 1, _X32),
        _ins(_RET, 0, 0, _KILL),
    ]
    for name, numbers in DENIED.items():
        number = numbers[column]
        if number is not None and not (may_fork_trials and name in _FOR_ZYGOTES):
            out += [_ins(_JEQ, 0, 1, number), _ins(_RET, 0, 0, _ERRNO | _EPERM)]
    # glibc falls back from clone3 to clone, whose flags a filter can read.
    out += [_ins(_JEQ, 0, 1, _CLONE3[column]), _ins(_RET, 0, 0, _ERRNO | _ENOSYS)]
    out += [
        _ins(_JEQ, 0, 4, _CLONE[column]),
        _ins(_LOAD, 0, 0, _ARG0),
        _ins(_JSET, 0, 1, _NEW_NAMESPACE),
        _ins(_RET, 0, 0, _ERRNO | _EPERM),
        _ins(_RET, 0, 0, _ALLOW),
    ]
    out += [
        _ins(_JEQ, 0, 3, _SOCKET[column]),
        _ins(_LOAD, 0, 0, _ARG0),
        _ins(_JEQ, 1, 0, _AF_UNIX),
        _ins(_RET, 0, 0, _ERRNO | _EACCES),
        _ins(_RET, 0, 0, _ALLOW),
    ]
    return b"".join(out)


def install(*, may_fork_trials: bool = False) -> None:
    """Put the filter in force for good. Needs no_new_privs."""
    code = program(may_fork_trials=may_fork_trials)
    loaded = _Program(len(code) // 8, code)
    syscalls.prctl(syscalls.PR_SET_SECCOMP, 2, ctypes.byref(loaded))


def _ins(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
