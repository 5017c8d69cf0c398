"""Environments of engines that have their own: another interpreter with its packages, beside ours.

Nothing of Perpetune is installed in one, and nothing of one is imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_host.errors import HostError
from protos.candidate import Scalar

_TCMALLOC = (
    "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib64/libtcmalloc_minimal.so.4",
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment of the Python that runs this process."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def variables(self, knobs: Mapping[str, Scalar]) -> dict[str, str]:
        """What a process with these knobs is started with, beside every child's environment."""
        preload = [str(self.folder / "lib" / "libiomp5.so")]
        if knobs.get("allocator") == "tcmalloc":
            preload += [path for path in _TCMALLOC if os.path.exists(path)][:1]
        found = {"LD_PRELOAD": ":".join(p for p in preload if os.path.exists(p))}
        if knobs.get("bind") is False:
            found["KMP_AFFINITY"] = "none"
        return found


def environment(engine: str) -> Environment:
    """`.venv-<engine>` beside our own environment. Raises HostError that says how to make it."""
    beside = Path(sys.prefix).parent / f".venv-{engine}"
    checkout = Path(__file__).parents[1] / f".venv-{engine}"
    for folder in (beside, checkout):
        found = Environment(folder)
        if found.packages.is_dir():
            return found
        if folder.is_dir():
            raise HostError(f"{folder} is of another Python than this one: make {engine} again")
    raise HostError(f"engine {engine} has no environment here: run make {engine}")
