"""A change as people read it: a unified diff of files, and knobs before and after."""

import difflib
from collections.abc import Mapping

from protos.candidate import Candidate, Scalar
from protos.release import Release
from services.blobs import Blobs
from services.errors import BlobError


def diff(before: Mapping[str, str], after: Mapping[str, str], blobs: Blobs) -> list[str]:
    """Unified diff of two trees (path to blob digest), one string a line."""
    lines: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        lines += difflib.unified_diff(
            _text(old, blobs),
            _text(new, blobs),
            f"a/{path}" if old else "/dev/null",
            f"b/{path}" if new else "/dev/null",
            lineterm="",
        )
    return lines


def candidate_diff(candidate: Candidate, base: Release, blobs: Blobs) -> list[str]:
    """The files that a candidate changes, against its base."""
    before = {path: base.files[path] for path in candidate.files if path in base.files}
    after = {path: digest for path, digest in candidate.files.items() if digest is not None}
    return diff(before, after, blobs)


def release_diff(release: Release, parent: Release, blobs: Blobs) -> list[str]:
    """A release against the one it was made from."""
    return diff(parent.files, release.files, blobs)


def knob_lines(before: Mapping[str, Scalar], changed: Mapping[str, Scalar]) -> list[str]:
    """`name: old -> new`, one line a knob that differs."""
    return [
        f"{name}: {before.get(name, 'default')} -> {value}"
        for name, value in sorted(changed.items())
        if before.get(name) != value
    ]


def _text(digest: str | None, blobs: Blobs) -> list[str]:
    if digest is None:
        return []
    try:
        return blobs.get(digest).decode("utf-8", "replace").splitlines()
    except BlobError as error:
        return [f"({error})"]
