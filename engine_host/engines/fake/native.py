"""Libraries built from a candidate's C sources."""

import ctypes
from functools import cache

PATHS: dict[str, str] = {}
"""Library name to the file it was built to; filled before a patch runs."""


@cache
def library(name: str) -> ctypes.CDLL:
    """Load `lib<name>.so`. Raises LookupError if it was not built, OSError if it can't load."""
    if name not in PATHS:
        raise LookupError(f"no native library {name!r} was built (there are: {sorted(PATHS)})")
    return ctypes.CDLL(PATHS[name])
