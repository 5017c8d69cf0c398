"""Run as a program: confine this process, then become the compiler.

Arguments: the scratch folder, limits, then the compiler's command line. Only the standard library,
so that it starts in `python -I -S`. The compiler never runs code of a candidate, but it opens
whatever a source names: it may read the toolchain and its scratch folder, and nothing else.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys

_TOOLCHAIN = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/alternatives", "/etc/ld.so.cache")
_READ_FILE, _READ_DIR, _EXECUTE, _WRITE_FILE, _TRUNCATE = 1 << 2, 1 << 3, 1 << 0, 1 << 1, 1 << 14
_READ = _READ_FILE | _READ_DIR | _EXECUTE
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # Landlock ABI: number of file system rights
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on x86-64 and arm64
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PATH_BENEATH = 1, 38, 1
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    scratch, cpu_s, memory_bytes, file_bytes, parent = sys.argv[1:6]
    command = sys.argv[6:]
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        raise SystemExit("who asked for this build is gone")
    _step_back()
    _limit(int(cpu_s), int(memory_bytes), int(file_bytes))
    _leave_network()
    _landlock(scratch)
    os.chdir(scratch)
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LANG": "C",
        "HOME": scratch,
        "TMPDIR": scratch,
    }
    os.execve(command[0], command, environment)


def _step_back() -> None:
    """Only idle time: a build must not be heard in a measurement."""
    os.nice(19)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _limit(cpu_s: int, memory_bytes: int, file_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave_network() -> None:
    """An empty network namespace, where the kernel lets us; a compiler has no use for one."""
    if _LIBC.unshare(_CLONE_NEWNET) != 0:
        _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def _landlock(scratch: str) -> None:
    if platform.machine() not in ("x86_64", "aarch64"):
        raise SystemExit(f"builds can't be confined on {platform.machine()}")
    abi = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        raise SystemExit("builds can't be confined: this kernel has no Landlock")
    rights = (1 << _FS_RIGHTS.get(abi, 16)) - 1
    network = 3 if abi >= 4 else 0  # bind and connect of TCP: none is allowed
    attributes = struct.pack("QQ", rights, network)[: 16 if abi >= 4 else 8]
    rules = _checked(
        _LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    )
    for path in _TOOLCHAIN:
        _allow(rules, path, _READ & rights)
    _allow(rules, "/dev/null", (_READ_FILE | _WRITE_FILE | _TRUNCATE) & rights)
    _allow(rules, scratch, rights & ~_EXECUTE)
    _checked(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_LIBC.syscall(_RESTRICT_SELF, rules, 0))
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):
        rights &= _READ_FILE | _WRITE_FILE | _EXECUTE | _TRUNCATE
    rule = struct.pack("=Qi", rights, handle)
    _checked(_LIBC.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0))
    os.close(handle)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise SystemExit(f"builds can't be confined: {os.strerror(code)}")
    return result


if __name__ == "__main__":
    main()
