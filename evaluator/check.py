"""Checking a candidate without running it. Pure but for reading blobs.

Every refusal is one line that says what to do.
"""

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from evaluator.flags import flag_fault
from evaluator.scope import KNOB_RUNGS, Change, Scope, scope_of
from protos.candidate import MAX_FILES, MAX_SOURCE_BYTES, Build, Candidate, Scalar
from protos.release import Release

MAX_PATH = 200
SUFFIXES = (".py", ".c", ".h")
_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LIBRARY = re.compile(r"[a-z][a-z0-9_]{0,63}")


class CheckRefused(Exception):
    """The candidate can't be tried; the message says what to do, in one line."""


class Blobs(Protocol):
    """The part of a blob store that is needed."""

    def has(self, digest: str) -> bool: ...

    def get(self, digest: str) -> bytes: ...


@dataclass(frozen=True)
class Checked:
    """A candidate that may be tried: the whole resulting tree, and what has to be built of it."""

    scope: Scope
    files: dict[str, str]
    knobs: dict[str, Scalar]
    builds: tuple[Build, ...]


class _Knob(msgspec.Struct):
    """A declared knob, as far as checking needs it (docs/ENGINE.md)."""

    name: str
    kind: str
    rung: str
    default: Scalar | None = None
    low: float | None = None
    high: float | None = None
    choices: list[Scalar] = []


def check(candidate: Candidate, release: Release, space: str, blobs: Blobs) -> Checked:
    """Check a candidate against its base. Raises CheckRefused."""
    if candidate.base != release.id:
        raise CheckRefused(
            f"its base {candidate.base} isn't release {release.id} it was checked against: "
            "make it again on the current release"
        )
    roots = _roots(release)
    for path, digest in candidate.files.items():
        _check_path(path, roots)
        if digest is None and path not in release.files:
            raise CheckRefused(f"{path} isn't in the base, so it can't be deleted: leave it out")
    texts = _read_new(candidate, blobs)
    files = _merged(release, candidate)
    builds = _merged_builds(release, candidate, files)
    knobs = {**release.knobs, **candidate.knobs}
    change = Change(
        old=_texts(release.files, blobs, {}),
        new=_texts(files, blobs, texts),
        knobs=_changed_knobs(candidate, release, space),
        libraries_changed=_changed_libraries(release, builds, files),
    )
    scope = scope_of(change)
    if scope is None:
        raise CheckRefused("it changes nothing that runs: change code, a knob or a build")
    return Checked(scope, files, knobs, builds)


def _roots(release: Release) -> tuple[str, ...]:
    """The packages of the engine's tree."""
    roots = {path.partition("/")[0] for path in release.files}
    if not roots:
        raise CheckRefused(f"release {release.id} has no files: it can't be changed")
    return tuple(sorted(roots))


def _check_path(path: str, roots: tuple[str, ...]) -> None:
    if len(path) > MAX_PATH:
        raise CheckRefused(f"path {path[:40]!r}… has {len(path)} characters: {MAX_PATH} at most")
    if "\\" in path:
        raise CheckRefused(f"path {path!r} has a backslash: write it with /")
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        raise CheckRefused(f"path {path!r} is absolute: give it relative, as {roots[0]}/model.py")
    parts = path.split("/")
    if ".." in parts or "." in parts or "" in parts:
        raise CheckRefused(f"path {path!r} may not have '..', '.' or empty parts: write it plainly")
    if parts[0] not in roots or len(parts) < 2:
        must = " or ".join(f"{root}/" for root in roots)
        raise CheckRefused(f"path {path!r} is outside the engine: it must begin with {must}")
    if not path.endswith(SUFFIXES):
        raise CheckRefused(f"path {path!r}: only {', '.join(SUFFIXES)} files may be in a candidate")
    stem = path.rpartition(".")[0]
    if not all(_PART.fullmatch(part) for part in stem.split("/")):
        raise CheckRefused(f"path {path!r}: use letters, digits and _ in names")


def _read_new(candidate: Candidate, blobs: Blobs) -> dict[str, str]:
    """The candidate's own files as text, each checked. Sizes first: nothing large is decoded."""
    if len(candidate.files) > MAX_FILES:
        raise CheckRefused(f"it has {len(candidate.files)} files, {MAX_FILES} are allowed")
    contents: dict[str, bytes] = {}
    for path, digest in candidate.files.items():
        if digest is not None:
            contents[path] = _content(path, digest, blobs)
            size = sum(map(len, contents.values()))
            if size > MAX_SOURCE_BYTES:
                raise CheckRefused(
                    f"its source is more than {MAX_SOURCE_BYTES} bytes ({size} with {path}): "
                    "make it smaller"
                )
    return {path: _text(path, content) for path, content in contents.items()}


def _content(path: str, digest: str, blobs: Blobs) -> bytes:
    if not _DIGEST.fullmatch(digest):
        raise CheckRefused(
            f"{path} is no file but {digest[:40]!r}: store its content and give the blob digest "
            "(links are not followed)"
        )
    if not blobs.has(digest):
        raise CheckRefused(f"{path}: blob {digest[:12]} isn't stored: store the file first")
    return blobs.get(digest)


def _text(path: str, content: bytes) -> str:
    if content.startswith((b"\x7fELF", b"\x89PNG", b"PK\x03\x04")) or b"\0" in content:
        raise CheckRefused(f"{path} is a binary file: only source text may be in a candidate")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise CheckRefused(f"{path}:{line}: not UTF-8 text: save it as UTF-8") from error
    if "\r" in text:
        line = text[: text.index("\r")].count("\n") + 1
        raise CheckRefused(f"{path}:{line}: Windows line end (CR): convert it to LF")
    if path.endswith(".py"):
        _check_python(path, text)
    return text


def _check_python(path: str, text: str) -> None:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode()).readline)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # the proposer's business, not ours
            compile(ast.parse(text, path), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise CheckRefused(f"{path}:{error.lineno or 1}: {error.msg}: mend the syntax") from error
    except (RecursionError, MemoryError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise CheckRefused(f"{path}:1: can't be parsed ({why}): nest it less") from error
    if encoding != "utf-8":
        # An engine that imports the file would obey, and run other code than was checked.
        raise CheckRefused(f"{path}: it declares the encoding {encoding}: write it in UTF-8")


def _merged(release: Release, candidate: Candidate) -> dict[str, str]:
    files = dict(release.files)
    for path, digest in candidate.files.items():
        if digest is None:
            files.pop(path, None)
        else:
            files[path] = digest
    return files


def _texts(files: Mapping[str, str], blobs: Blobs, known: Mapping[str, str]) -> dict[str, str]:
    return {
        path: known[path] if path in known else blobs.get(digest).decode("utf-8")
        for path, digest in files.items()
        if path.endswith(".py")
    }


def _changed_knobs(candidate: Candidate, release: Release, space: str) -> dict[str, str]:
    """The rung of each knob whose value is another than the base's. Raises on a bad knob."""
    try:
        declared = {knob.name: knob for knob in msgspec.json.decode(space, type=list[_Knob])}
    except msgspec.DecodeError as error:
        raise CheckRefused(f"the engine's declared space can't be read: {error}") from error
    changed = {}
    for name, value in candidate.knobs.items():
        if name not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise CheckRefused(f"unknown knob {name!r}: the engine has {known}")
        knob = declared[name]
        _check_knob(knob, value)
        before = release.knobs.get(name, knob.default)
        if value != before or isinstance(value, bool) != isinstance(before, bool):
            changed[name] = knob.rung
    return changed


def _check_knob(knob: _Knob, value: Scalar) -> None:
    if knob.rung not in KNOB_RUNGS:
        raise CheckRefused(f"knob {knob.name} is declared with rung {knob.rung!r}: mend the engine")
    kinds: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float)}
    if knob.kind == "choice":
        same = [
            c for c in knob.choices if c == value and isinstance(c, bool) == isinstance(value, bool)
        ]
        if not same:
            options = ", ".join(map(str, knob.choices))
            raise CheckRefused(f"knob {knob.name} can't be {value!r}: use one of {options}")
        return
    wanted = kinds.get(knob.kind, ())
    if not isinstance(value, wanted) or (isinstance(value, bool) and knob.kind != "bool"):
        raise CheckRefused(f"knob {knob.name} must be {knob.kind}, not {value!r}")
    if knob.kind == "bool" or isinstance(value, str):
        return
    if (knob.low is not None and value < knob.low) or (knob.high is not None and value > knob.high):
        raise CheckRefused(
            f"knob {knob.name} is {value}, outside {knob.low:g} to {knob.high:g}"
            if knob.low is not None and knob.high is not None
            else f"knob {knob.name} is {value}, out of its range"
        )


def _merged_builds(
    release: Release, candidate: Candidate, files: Mapping[str, str]
) -> tuple[Build, ...]:
    builds = {build.name: build for build in release.builds}
    names = [build.name for build in candidate.builds]
    if len(set(names)) != len(names):
        raise CheckRefused("two builds have the same name: rename one")
    builds.update({build.name: build for build in candidate.builds})
    for build in builds.values():
        _check_build(build, files)
    built = {source for build in builds.values() for source in build.sources}
    for path, digest in candidate.files.items():
        if digest is not None and path.endswith(".c") and path not in built:
            raise CheckRefused(f"{path} is in no build: add a build that names it")
    return tuple(builds[name] for name in sorted(builds))


def _check_build(build: Build, files: Mapping[str, str]) -> None:
    if not _LIBRARY.fullmatch(build.name):
        raise CheckRefused(f"build name {build.name!r}: use small letters, digits and _")
    if not build.sources:
        raise CheckRefused(f"build {build.name} has no sources: name its .c files")
    for source in build.sources:
        if source not in files:
            raise CheckRefused(
                f"build {build.name} names {source}, which isn't in the tree: add it"
            )
        if not source.endswith(".c"):
            raise CheckRefused(f"build {build.name} names {source}: only .c files are compiled")
    for flag in build.flags:
        fault = flag_fault(flag)
        if fault:
            raise CheckRefused(f"build {build.name}: {fault}")


def _changed_libraries(
    release: Release, builds: tuple[Build, ...], files: Mapping[str, str]
) -> dict[str, bool]:
    """Libraries that come out another way than in the base: to whether the base has them."""
    before = {build.name: build for build in release.builds}
    headers = {p for p in {*files, *release.files} if p.endswith(".h")}
    changed = {}
    for build in builds:
        parts = {*build.sources, *headers}
        same_text = all(files.get(part) == release.files.get(part) for part in parts)
        if before.get(build.name) != build or not same_text:
            changed[build.name] = build.name in before
    return changed
