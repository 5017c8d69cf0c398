"""Exact patches in git's dialect: what `git apply` and `patch -p1` make of them is the new file."""

import difflib
import re
from collections.abc import Mapping

from services.export.errors import ExportError

Contents = Mapping[str, bytes | None]
"""Path in the tree to content; None where there is no such file."""

_END = "\\ No newline at end of file\n"


def patch(header: list[str], before: Contents, after: Contents) -> bytes:
    """One patch file: lines for people, then the difference of two trees, path by path.

    Raises ExportError for a file that is no text.
    """
    parts = [_for_people(line) for line in header]
    for path in sorted(before.keys() | after.keys()):
        parts += _file(path, before.get(path), after.get(path))
    return "".join(parts).encode("utf-8", "surrogateescape")


def file_name(number: int, title: str) -> str:
    """`0001-fused-qkv-projection.patch`."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48].strip("-")
    return f"{number:04d}-{words or 'change'}.patch"


def _for_people(line: str) -> str:
    """A line that no tool takes for a part of a difference, whatever a proposer wrote."""
    return f"# {' '.join(line.split())}\n"


def _file(path: str, old: bytes | None, new: bytes | None) -> list[str]:
    if old == new:
        return []
    lines = [f"diff --git a/{path} b/{path}\n"]
    if old is None:
        lines.append("new file mode 100644\n")
    elif new is None:
        lines.append("deleted file mode 100644\n")
    was = f"a/{path}" if old is not None else "/dev/null"
    now = f"b/{path}" if new is not None else "/dev/null"
    for line in difflib.unified_diff(_lines(path, old), _lines(path, new), was, now):
        lines += [line] if line.endswith("\n") else [line + "\n", _END]
    return lines


def _lines(path: str, content: bytes | None) -> list[str]:
    """Lines as patch tools see them: ended by a newline and nothing else."""
    if content is None:
        return []
    if b"\0" in content:
        raise ExportError(f"{path} is no text, so there is no patch for it")
    return re.findall(r"[^\n]*\n|[^\n]+", content.decode("utf-8", "surrogateescape"))
