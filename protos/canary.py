"""Canaries: candidates whose verdict is known, sent along to see whether the judge finds it.

They have an arm of their own, build on the start release and are never promoted. What kind one is
stands in its label, which no lease and no engine is given.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["null", "gain", "cheat"]
KINDS: tuple[Kind, ...] = ("null", "gain", "cheat")
ARM = "canary"
# Nulls are what false promotions would be made of, so they come most often.
KIND_OF_TURN: tuple[Kind, ...] = ("null", "cheat", "null", "gain", "null", "cheat", "null", "null")


def label_of(kind: Kind, what: str, number: int) -> str:
    """The label of a campaign's canary `number`."""
    return f"canary {number}, {kind}: {what}"


def kind_of(label: str) -> Kind | None:
    """The kind that a canary's label names; None: it is no canary's."""
    head = label.partition(":")[0].rpartition(", ")[2]
    return next((kind for kind in KINDS if head == kind), None)


def is_wrong(kind: Kind, word: str) -> bool:
    """Whether a verdict's word is not what this kind deserves: a false accept or reject."""
    return word != "faster" if kind == "gain" else word == "faster"
