"""What a strategy is given, what it gives, and what it is told. Pure values."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from protos.candidate import Build, Candidate, Scalar
from protos.release import EngineFacts, Release
from protos.target import Objective, Target, Workload

CLASSES = ("bitwise", "equivalent", "quality")  # tightest first


@dataclass(frozen=True)
class Tried:
    """A candidate and its verdict; `ratio` is B/A of its newest trial, above 1 is better."""

    candidate: Candidate
    word: str
    ratio: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Context:
    """The campaign as a strategy sees it.

    `base` is the release to build on, `sources` its texts by path, `start` the campaign's first
    release. `space` are the engine's declared knobs (docs/ENGINE.md). `known` are the ids of every
    candidate of the campaign so far, `history` those that were judged, in the ledger's order.
    """

    campaign: str
    target: Target
    workload: Workload
    objective: Objective
    facts: EngineFacts
    base: Release
    start: Release
    sources: Mapping[str, str]
    space: tuple[Mapping[str, Any], ...]
    known: frozenset[str] = frozenset()
    history: tuple[Tried, ...] = ()

    def accepts(self, output_class: str) -> bool:
        """Whether the objective admits outputs of this class."""
        return CLASSES.index(output_class) <= CLASSES.index(self.objective.output_class)

    def knob(self, name: str) -> Scalar:
        """The value a knob has in the base release."""
        default = next(knob["default"] for knob in self.space if knob["name"] == name)
        value: Scalar = self.base.knobs.get(name, default)
        return value


@dataclass(frozen=True)
class Proposal:
    """A change of the context's base. `files` are whole texts by path; null deletes."""

    label: str
    rationale: str
    files: dict[str, str | None] = field(default_factory=dict)
    knobs: dict[str, Scalar] = field(default_factory=dict)
    builds: tuple[Build, ...] = ()
    output_class: str = "equivalent"
    parents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate of this strategy. `tier` is null where no trial was needed."""

    tried: Tried
    tier: str | None


class Strategy(Protocol):
    """One way to find candidates.

    `propose` is asked while fewer of its candidates wait than the window holds; None means that it
    has nothing to propose until something changes. It may be slow and then returns an awaitable.
    `learn` is told every outcome of its own candidates, in the ledger's order, also of those from
    before a restart, so that a strategy needs no memory of its own. Both are told of one campaign.
    """

    name: str
    arm: str

    def propose(self, context: Context) -> Proposal | Awaitable[Proposal | None] | None: ...

    def learn(self, outcome: Outcome) -> None: ...
