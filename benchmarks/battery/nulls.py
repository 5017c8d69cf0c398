"""Null patches: real changes that every request runs through and that change nothing of note."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.battery.fixture import (
    BLOCKS,
    ENGINE,
    LAYERS,
    MODEL,
    SAMPLING,
    SCHEDULER,
    Sources,
    guarded,
)
from benchmarks.mix import Entry

# Functions that every request needs, but for those that run while an engine is built.
PLACES = (
    (SCHEDULER, "Scheduler.plan"),
    (ENGINE, "Engine.step"),
    (ENGINE, "Engine._advance"),
    (SAMPLING, "choose_tokens"),
    (MODEL, "Model.logits"),
    (BLOCKS, "BlockPool.remember"),
    (SCHEDULER, "Scheduler.finish"),
    (LAYERS, "attention_prefill"),
)


def null_patches(sources: Sources, count: int) -> Iterator[Entry]:
    """`count` different null patches, each of one function in turn."""
    for number in range(count):
        path, function = PLACES[number % len(PLACES)]
        files = guarded(sources, (path, function, f"_unused = {number}\n"))
        yield Entry(f"null {number} in {function}", "null", files)
