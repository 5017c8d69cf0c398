"""Which compiler flags a build may use, and which sources may be compiled at all. Pure.

The sandbox is what keeps a build in; these rules are the first fence, and give the clear line.
"""

import re
from collections.abc import Mapping

_ALLOWED = tuple(
    re.compile(pattern)
    for pattern in (
        r"-O(?:[0-3sgz]|fast)?",
        r"-m[a-z0-9][a-z0-9.=+-]*",
        r"-f[a-z0-9][a-z0-9=+-]*",
        r"-std=(?:c|gnu)(?:89|90|99|11|17|18|2x|23)",
        r"-D[A-Za-z_][A-Za-z0-9_]*(?:=[A-Za-z0-9_.+-]*)?",
        r"-W[a-z0-9=-]*",
        r"-lm",
        r"-pthread",
    )
)
# They load code into the compiler, or read and write files of their own.
_REFUSED = (
    "-fplugin",
    "-fdump",
    "-fprofile",
    "-fsanitize",
    "-fuse-ld",
    "-ftest-coverage",
    "-fcoverage",
    "-fcallgraph",
    "-fstack-usage",
    "-fsave",
    "-fopt-info",
    "-fdiagnostics",
    "-fauto-profile",
    "-fbranch-probabilities",
    "-frandom-seed",
    "-fwpa",
    "-fltrans",
    "-fdebug",
    "-ffile",
    "-fmacro",
    "-fcompare-debug",
    "-fpreprocessed",
    "-fpch",
    "-fworking",
    "-fresolution",
    "-flto",
    "-fmodule",
    "-flinker",
    "-fcf-protection=check",
)
_LINES = re.compile(r"\\[ \t]*\n")
_COMMENTS = re.compile(r"/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(
    r"^\s*(?:#|%:|\?\?=)\s*(include|include_next|import|embed)\b\s*(.*)$", re.MULTILINE
)
_SYSTEM = re.compile(r"<([A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*\.h)>")
_OWN = re.compile(r'"([A-Za-z0-9_]+\.h)"')


def flag_fault(flag: str) -> str | None:
    """Why a flag is refused; None: it may be used."""
    if flag.startswith(_REFUSED):
        return f"flag {flag!r} is not allowed: leave it out"
    if not any(pattern.fullmatch(flag) for pattern in _ALLOWED):
        return (
            f"flag {flag!r} is not allowed: use -O, -march, -m, -f, -std, -D, -W, -lm or -pthread"
        )
    return None


def source_fault(path: str, text: str, tree: Mapping[str, object]) -> str | None:
    """Why a C source is refused: it may include system headers and headers beside it, no others."""
    plain = _COMMENTS.sub(" ", _LINES.sub("", text))
    folder = path.rpartition("/")[0]
    for found in _INCLUDE.finditer(plain):
        word, what = found.group(1), found.group(2).strip()
        if word in ("embed", "include_next"):
            return f"{path}: #{word} is not allowed: put the content into the source"
        own = _OWN.match(what)
        if own and f"{folder}/{own.group(1)}" in tree:
            continue
        if own:
            return f"{path}: #include {own.group(0)}: no such header in {folder}/: add it"
        if not _SYSTEM.match(what):
            return (
                f"{path}: #include {what[:60]} is not allowed: use <header.h> or a header beside it"
            )
    if "incbin" in plain:
        return f"{path}: .incbin is not allowed: put the data into the source"
    return None
