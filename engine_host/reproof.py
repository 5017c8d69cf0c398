"""Proof, while idle, that what trials are taken from is still what it was built as."""

from __future__ import annotations

import hashlib
from pathlib import Path

from engine_host import trees
from engine_host.block import serve
from engine_host.errors import EngineLostError, TrialFailedError
from engine_host.residency import Residency, golden_requests
from protos.trial import Limits, Request


def reprove(residency: Residency) -> dict[str, str]:
    """What is wrong with the engine of each release that is up; an empty text: nothing."""
    damaged = damaged_weights(residency.model.folder)
    found: dict[str, str] = {}
    for release, resident in residency.residents().items():
        wrong = damaged
        if not wrong and not trees.is_intact(
            Path(resident.spec.tree), dict(residency.tree(release).files)
        ):
            wrong = "its tree on disk has changed"
        if not wrong:
            wrong = _golden(residency, release, resident.golden)
        found[release] = wrong
    return found


def damaged_weights(folder: Path) -> str:
    """The first file of a prepared folder that no longer has its recorded digest; empty: none."""
    for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        expected, name = line.split("  ", 1)
        try:
            with (folder / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"{name} of the model can't be read: {error.strerror}"
        if digest != expected:
            return f"{name} of the model has changed"
    return ""


def _golden(residency: Residency, release: str, golden: list[list[int]]) -> str:
    """Serve the golden requests in a fork and compare; empty: the same tokens as when built."""
    requests = [
        Request(r["id"], tuple(r["prompt"]), r["max_tokens"])
        for r in golden_requests(residency.model.vocab)
    ]
    try:
        (process,) = residency.residents()[release].take(Limits())
    except EngineLostError as error:
        return str(error)
    try:
        process.ask("load", "start", 10.0, knobs=dict(residency.tree(release).knobs))
        tokens = [list(serve(process, [request], 30.0).requests[0].tokens) for request in requests]
    except TrialFailedError as error:
        return f"the golden requests failed: {error.detail}"
    finally:
        process.end()
    return (
        "" if tokens == golden else "the golden requests gave other tokens than when it was built"
    )
