"""Three-way merge of a candidate onto a newer release: by file, then by line. Pure but for `read`.

A knob is one value: where candidate and newer release both set it, the candidate's is what was
proposed, and is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from merge3 import Merge3

from protos.candidate import Build, Candidate, Cost, Scalar
from protos.ids import digest_bytes
from protos.release import Release

Read = Callable[[str], bytes]  # digest -> blob


class MergeConflict(Exception):
    """The candidate and the newer release changed the same thing; the message names it."""


@dataclass(frozen=True)
class Merged:
    """The candidate on its new base, and the blobs its files need: digest to bytes."""

    candidate: Candidate
    blobs: dict[str, bytes] = field(default_factory=dict)


def rebase(candidate: Candidate, base: Release, onto: Release, read: Read) -> Merged:
    """The candidate, made for `base`, as one for `onto`.

    Raises MergeConflict, also where nothing of the candidate is left to try.
    """
    blobs: dict[str, bytes] = {}
    files: dict[str, str | None] = {}
    for path, mine in sorted(candidate.files.items()):
        old, new = base.files.get(path), onto.files.get(path)
        merged = mine if old == new or mine == new else _merge(path, old, mine, new, read, blobs)
        if merged != new:
            files[path] = merged
    knobs = {k: v for k, v in candidate.knobs.items() if not _same(onto.knobs.get(k), v)}
    changed = _changed_builds(candidate.builds, base.builds, onto.builds)
    if not files and not knobs and not changed:
        raise MergeConflict(f"release {onto.number} already holds all of it")
    moved = msgspec.structs.replace(
        candidate,
        base=onto.id,
        files=files,
        knobs=knobs,
        # With files left, all recipes stay: a library is built anew where only its sources change.
        builds=candidate.builds if files else changed,
        parents=(*candidate.parents, candidate.id)[-8:],
        cost=Cost(),  # paid for once
    )
    return Merged(moved, blobs)


def _merge(
    path: str,
    old: str | None,
    mine: str | None,
    new: str | None,
    read: Read,
    blobs: dict[str, bytes],
) -> str | None:
    if mine == old:
        return new
    if old is None:
        raise MergeConflict(f"{path}: both add it, differently")
    if mine is None or new is None:
        raise MergeConflict(f"{path}: one side deletes it, the other changes it")
    text = _merge_lines(path, read(old), read(mine), read(new))
    digest = digest_bytes(text)
    blobs[digest] = text
    return digest


def _merge_lines(path: str, old: bytes, mine: bytes, new: bytes) -> bytes:
    try:
        base, a, b = (data.decode().splitlines(keepends=True) for data in (old, mine, new))
    except UnicodeDecodeError:
        raise MergeConflict(f"{path}: both change it, and it is not text") from None
    lines: list[str] = []
    for kind, *part in Merge3(base, a, b).merge_groups():
        if kind == "conflict":
            raise MergeConflict(f"{path}: both change the same lines")
        lines.extend(part[0])
    return "".join(lines).encode()


def _changed_builds(
    mine: tuple[Build, ...], base: tuple[Build, ...], onto: tuple[Build, ...]
) -> tuple[Build, ...]:
    old, new = {b.name: b for b in base}, {b.name: b for b in onto}
    kept = []
    for build in mine:
        before, after = old.get(build.name), new.get(build.name)
        if before != after and build not in (before, after):
            raise MergeConflict(f"library {build.name}: both change its build")
        if build != after:
            kept.append(build)
    return tuple(kept)


def _same(one: Scalar | None, other: Scalar) -> bool:
    return type(one) is type(other) and one == other
