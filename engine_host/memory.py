"""Whether a model's engines fit this machine, asked before anything of it is read."""

from __future__ import annotations

from pathlib import Path

from engine_host.errors import HostError

# Of the weights' size in bfloat16: a warm engine's own, twice as many for the float32 reference,
# and the file they are mapped from.
COPIES = 4
_WEIGHTS = ("*.safetensors", "*.gguf", "weights.bin")


def require(model: str, found: Path, own_bytes: int) -> None:
    """Raise HostError unless the engines of a model fit what memory is available.

    `found` is its folder or file; `own_bytes` is what its engines take beside the weights.
    """
    available = available_bytes()
    needed = COPIES * weights_bytes(found) + own_bytes
    if available is not None and needed > available:
        raise HostError(
            f"model {model} is too large for this machine: its engines need about "
            f"{needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} GB are available"
        )


def weights_bytes(found: Path) -> int:
    """Size of the files of weights in a folder, or of one file; 0 where there are none."""
    if found.is_file():
        return found.stat().st_size
    if not found.is_dir():
        return 0
    return sum(path.stat().st_size for kind in _WEIGHTS for path in found.glob(kind))


def available_bytes() -> int | None:
    """Memory that programs can still get; None: this system doesn't say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None
