"""What an engine child may see and gets as environment, decided on the host's side."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

CHILD_FOLDER = Path(__file__).parent / "child"
SYSTEM_PATHS = (
    "/usr/lib",
    "/usr/lib64",
    "/usr/bin",
    "/usr/include",
    "/usr/local/lib",
    "/usr/libexec",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)
_NAME = re.compile(r"^[A-Za-z0-9._-]+")


@lru_cache
def package_paths(roots: tuple[str, ...]) -> tuple[str, ...]:
    """Entries of site-packages that these distributions and what they require consist of.

    An allow-list: whatever else is installed there, our own rooms above all, isn't on it.
    """
    paths: set[str] = set()
    for name in _closure(roots):
        distribution = importlib.metadata.distribution(name)
        base = Path(str(distribution.locate_file("")))
        # The file's own text: parsed entries of a package of ten thousand files take megabytes.
        record = distribution.read_text("RECORD") or ""
        tops = {line.partition(",")[0].partition("/")[0] for line in record.splitlines()}
        paths |= {str(base / top) for top in tops - {"", "..", "__pycache__"}}
    return tuple(sorted(p for p in paths if os.path.exists(p)))


def _closure(roots: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    queue = list(roots)
    while queue:
        name = queue.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        for line in requires:
            match = _NAME.match(line)
            if match and "extra ==" not in line:
                queue.append(match.group())
    return found


def view(packages: tuple[str, ...], extra: tuple[str, ...]) -> tuple[str, ...]:
    """Everything a child sees: the system's libraries, Python, these packages, its own paths."""
    paths = [*SYSTEM_PATHS, *_stdlib_folders()]
    paths += [str(p) for p in sorted(Path(sys.base_prefix, "lib").glob("libpython*"))]
    paths += [str(p) for p in sorted(Path(sys.prefix, "lib").glob("*.so*"))]
    return tuple(_outermost([*paths, str(CHILD_FOLDER), *extra], package_paths(packages)))


def hidden() -> tuple[str, ...]:
    """Folders of installed packages inside the standard library's: shown empty."""
    names = ("site-packages", "dist-packages")
    found = [os.path.join(folder, name) for folder in _stdlib_folders() for name in names]
    return tuple(path for path in found if os.path.isdir(path))


def _stdlib_folders() -> list[str]:
    return sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


def _outermost(paths: list[str], packages: tuple[str, ...]) -> list[str]:
    """Leave out what lies below another one; packages stay, for what they lie in may be hidden."""
    kept: list[str] = []
    for path in sorted(dict.fromkeys(paths)):
        if os.path.lexists(path) and not any(path.startswith(k + "/") for k in kept):
            kept.append(path)
    return [*kept, *packages]


def environment() -> dict[str, str]:
    """A child's whole environment: nothing of the host's own."""
    values = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/scratch",
        "TMPDIR": "/scratch",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Milliseconds a worker spins before it sleeps: while somebody else has a core, a spinning
        # worker takes the other one from whoever it waits for.
        "KMP_BLOCKTIME": "1",
        # Each worker keeps its core: left alone, two that are woken together often share one for
        # tens of milliseconds, which is most of what blocks of one engine differ by.
        "KMP_AFFINITY": "granularity=fine,scatter",
    }
    openmp = Path(sys.prefix, "lib", "libiomp5.so")
    if openmp.exists():
        # A fork of a process whose OpenMP pool has run hangs with libgomp, and works with this.
        values["LD_PRELOAD"] = str(openmp)
    return values


def search_paths() -> tuple[str, ...]:
    """Folders a child appends to sys.path (it starts without site)."""
    return tuple(dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))))
