"""The build sandbox: C sources to a shared library, kept by what went into it.

A library is keyed by digest(sources, flags, ABI): the same build is made once.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from evaluator.flags import flag_fault, source_fault
from protos.candidate import Build

_CHILD = Path(__file__).with_name("build_child.py")
_MESSAGES_BYTES = 64_000


class BuildRefused(Exception):
    """The sources don't build; the message is the compiler's first error, in one line."""


class BuildTrouble(Exception):
    """This machine can't build at all (no compiler, no confinement)."""


class Store(Protocol):
    """The part of a blob store that is needed."""

    def put(self, data: bytes) -> str: ...

    def has(self, digest: str) -> bool: ...


@dataclass(frozen=True)
class BuildLimits:
    """What one compilation may use; every limit is enforced from outside the compiler."""

    wall_s: float = 40.0
    cpu_s: int = 30
    memory_bytes: int = 2_000_000_000
    file_bytes: int = 32_000_000


def build_library(
    build: Build,
    sources: Mapping[str, bytes],
    store: Store,
    cache: Path,
    limits: BuildLimits | None = None,
) -> str:
    """The blob digest of `lib<name>.so`. `sources` are the tree's C sources and headers by path.

    Raises BuildRefused or BuildTrouble.
    """
    _check(build, sources)
    key = build_key(build, sources)
    note = cache / key
    if note.exists() and store.has(digest := note.read_text().strip()):
        return digest
    try:
        digest = store.put(_compile(build, sources, limits or BuildLimits()))
        _keep(note, digest)
    except OSError as error:
        raise BuildTrouble(f"a build can't be written: {error}") from error
    return digest


def _keep(note: Path, digest: str) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    draft = note.with_name(f"{note.name}.{os.getpid()}")
    draft.write_text(digest)
    draft.replace(note)


def build_key(build: Build, sources: Mapping[str, bytes]) -> str:
    """Digest of everything a library depends on."""
    key = hashlib.sha256(abi().encode())
    for part in (build.name, *build.sources, "|", *build.flags):
        key.update(hashlib.sha256(part.encode()).digest())
    for path in sorted(sources):
        if path in build.sources or path.endswith(".h"):
            key.update(hashlib.sha256(path.encode()).digest())
            key.update(hashlib.sha256(sources[path]).digest())
    return key.hexdigest()


def compiler() -> str:
    """Where gcc lies. Raises BuildTrouble where there is none, or none that can be confined."""
    found = shutil.which("gcc")
    if found is None:
        raise BuildTrouble("there is no C compiler: install gcc")
    path = os.path.realpath(found)
    if not path.startswith(("/usr/", "/bin/")):
        raise BuildTrouble(f"builds can't be confined: gcc is {path}, it must lie in /usr")
    return path


@lru_cache(maxsize=1)
def abi() -> str:
    """Machine, instruction set and compiler: what `-march=native` code depends on."""
    said = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()}|{features}|{said.stdout.splitlines()[0]}"


def _check(build: Build, sources: Mapping[str, bytes]) -> None:
    for flag in build.flags:
        fault = flag_fault(flag)
        if fault:
            raise BuildRefused(fault)
    for path in build.sources:
        if path not in sources:
            raise BuildRefused(f"{path} isn't in the tree: add it")
    for path, content in sources.items():
        if path in build.sources or path.endswith(".h"):
            fault = source_fault(path, content.decode("utf-8", "replace"), sources)
            if fault:
                raise BuildRefused(fault)


def _compile(build: Build, sources: Mapping[str, bytes], limits: BuildLimits) -> bytes:
    abi()
    with tempfile.TemporaryDirectory(prefix="perpetune-build-") as name:
        scratch = Path(name).resolve()
        for path, content in sources.items():
            target = scratch / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        messages = scratch / "messages"
        code = _run(_command(build), scratch, messages, limits)
        library = scratch / "library.so"
        if code != 0 or not library.is_file():
            text = messages.read_bytes()[:_MESSAGES_BYTES].decode("utf-8", "replace")
            raise _failure(build, text.replace(f"{scratch}/", ""), code, limits)
        return library.read_bytes()


def _command(build: Build) -> list[str]:
    options = [flag for flag in build.flags if not flag.startswith("-l")]
    libraries = [flag for flag in build.flags if flag.startswith("-l")]
    fixed = ["-shared", "-fPIC", "-fmax-errors=5", "-fno-diagnostics-show-caret", "-x", "c"]
    return [compiler(), *options, *fixed, *build.sources, "-o", "library.so", *libraries]


def _run(command: list[str], scratch: Path, messages: Path, limits: BuildLimits) -> int | None:
    """The compiler's exit status; None when it was ended for taking too long."""
    child = [
        *(sys.executable, "-I", "-S", str(_CHILD), str(scratch)),
        *(str(limits.cpu_s), str(limits.memory_bytes), str(limits.file_bytes), str(os.getpid())),
    ]
    path = os.environ.get("PATH", "/usr/bin:/bin")
    with messages.open("wb") as output:
        process = subprocess.Popen(
            [*child, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"PATH": path},
            cwd=scratch,
            start_new_session=True,
        )
        try:
            return process.wait(timeout=limits.wall_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the compiler with all its helpers: they share one session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failure(build: Build, text: str, code: int | None, limits: BuildLimits) -> Exception:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    unconfined = [line for line in lines if line.startswith("builds can't be confined")]
    if unconfined:
        return BuildTrouble(unconfined[0])
    bound = (
        f"{limits.cpu_s} s of CPU, {limits.memory_bytes / 1e9:g} GB, "
        f"{limits.file_bytes / 1e6:g} MB of output"
    )
    if code is None:
        return BuildRefused(
            f"{build.name}: compiling took more than {limits.wall_s:g} s: make it smaller"
        )
    ended = ("Killed", "CPU time limit", "File size limit", "out of memory", "File too large")
    if any(word in line for line in lines for word in ended) or code < 0:
        return BuildRefused(
            f"{build.name}: the compiler ran into its limits ({bound}): make it smaller"
        )
    errors = (
        [line for line in lines if "error:" in line.lower()] or lines or [f"gcc ended with {code}"]
    )
    return BuildRefused(f"{build.name}: {errors[0][:300]}")
