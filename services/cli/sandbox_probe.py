"""Which confinements this kernel offers a trial: namespaces, Landlock, seccomp.

Each probe runs in a small child process, so that nothing here changes the process that asks.
"""

import subprocess
import sys
from collections.abc import Iterator

_CLONE = {
    "network": 0x40000000,
    "pid": 0x20000000,
    "mount": 0x00020000,
    "ipc": 0x08000000,
    "user": 0x10000000,
}
_UNSHARE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare({flags}) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
"""
# landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) gives the ABI; number 444 on
# every architecture since 5.13.
_LANDLOCK = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
abi = libc.syscall(444, None, 0, 1)
if abi < 1:
    sys.exit(os.strerror(ctypes.get_errno()))
print(abi)
"""
# prctl(PR_GET_SECCOMP) answers 0 where seccomp is built in; EINVAL where it isn't.
_SECCOMP = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(21, 0, 0, 0, 0) < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
"""


def probes() -> Iterator[tuple[str, bool, str, str]]:
    """(name, works, detail, what to do) of each confinement."""
    yield _namespaces()
    works, said = _try(_LANDLOCK)
    yield (
        "landlock",
        works,
        f"ABI {said}" if works else f"not offered: {said}",
        "a kernel of 5.13 or newer with landlock among its lsm= confines files; trials run without",
    )
    works, said = _try(_SECCOMP)
    yield (
        "seccomp",
        works,
        "offered" if works else f"not offered: {said}",
        "a kernel with CONFIG_SECCOMP_FILTER limits system calls; trials run without",
    )


def _namespaces() -> tuple[str, bool, str, str]:
    wanted = [name for name in _CLONE if name != "user"]
    alone = {name for name in wanted if _try(_UNSHARE.format(flags=_CLONE[name]))[0]}
    if alone == set(wanted):
        return "namespaces", True, f"{', '.join(wanted)} (privileged)", ""
    for_users = {
        name for name in wanted if _try(_UNSHARE.format(flags=_CLONE[name] | _CLONE["user"]))[0]
    }
    works = for_users == set(wanted)
    detail = f"{', '.join(sorted(for_users)) or 'none'} (in a user namespace)"
    remedy = "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
    return "namespaces", works, detail, remedy


def _try(program: str) -> tuple[bool, str]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    said = (done.stdout if done.returncode == 0 else done.stderr).strip()
    return done.returncode == 0, said
