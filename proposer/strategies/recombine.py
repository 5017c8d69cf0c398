"""`recombine`: merges of what won by itself on the current release, the strongest pairs first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from proposer.strategies.base import CLASSES, Context, Outcome, Proposal, Tried
from proposer.strategies.merging import Conflict, merge_texts
from proposer.strategies.proposing import candidate_id
from protos.candidate import Build, Candidate, Scalar

_PAIRS = 60  # looked at for one proposal


class Recombine:
    """Pairs of winners; a pair that won is a winner itself, so that larger sets grow from it."""

    name = "recombine"
    arm = "search"

    def __init__(self, read: Callable[[str], str]) -> None:
        """`read` gives the text of a blob digest."""
        self._read = read
        self._made: dict[tuple[str, str], Proposal | None] = {}  # by the ids of a pair

    def propose(self, context: Context) -> Proposal | None:
        """The strongest pair of winners that merges and wasn't sent."""
        for one, other in itertools.islice(_pairs(context), _PAIRS):
            pair = (one.id, other.id)
            if pair not in self._made:
                self._made[pair] = self._merged(context, one, other)
            proposal = self._made[pair]
            if proposal and candidate_id(context, proposal, self.arm) not in context.known:
                return proposal
        return None

    def learn(self, outcome: Outcome) -> None:
        """Nothing to keep: the context's history holds every winner."""

    def _merged(self, context: Context, one: Candidate, other: Candidate) -> Proposal | None:
        try:
            files = self._files(context, one, other)
            knobs = _knobs(one, other)
            builds = _builds(one, other)
        except Conflict:
            return None
        merged = (files, knobs, builds)
        if merged in (_parts(self._texts(one), one), _parts(self._texts(other), other)):
            return None
        return Proposal(
            label=f"{one.label} + {other.label}",
            rationale="Both won by themselves on this release, and change different things.",
            files=files,
            knobs=knobs,
            builds=builds,
            output_class=max(one.output_class, other.output_class, key=CLASSES.index),
            parents=(one.id, other.id),
        )

    def _files(self, context: Context, one: Candidate, other: Candidate) -> dict[str, str | None]:
        mine, theirs = self._texts(one), self._texts(other)
        files: dict[str, str | None] = {**mine, **theirs}
        for path in mine.keys() & theirs.keys():
            a, b = mine[path], theirs[path]
            if a == b:
                continue
            if a is None or b is None or path not in context.sources:
                raise Conflict(path)
            files[path] = merge_texts(context.sources[path], a, b)
        return files

    def _texts(self, candidate: Candidate) -> dict[str, str | None]:
        return {
            path: None if digest is None else self._read(digest)
            for path, digest in candidate.files.items()
        }


def _pairs(context: Context) -> Iterator[tuple[Candidate, Candidate]]:
    winners = [t for t in context.history if _won(context, t)]
    winners.sort(key=lambda tried: -(tried.ratio or 1.0))
    pairs = itertools.combinations(range(len(winners)), 2)
    for a, b in sorted(pairs, key=lambda pair: (sum(pair), pair)):
        yield winners[a].candidate, winners[b].candidate


def _won(context: Context, tried: Tried) -> bool:
    candidate = tried.candidate
    return (
        tried.word == "faster" and candidate.arm == "search" and candidate.base == context.base.id
    )


def _knobs(one: Candidate, other: Candidate) -> dict[str, Scalar]:
    clash = [n for n in one.knobs.keys() & other.knobs.keys() if one.knobs[n] != other.knobs[n]]
    if clash:
        raise Conflict(clash[0])
    return {**one.knobs, **other.knobs}


def _builds(one: Candidate, other: Candidate) -> tuple[Build, ...]:
    builds = {build.name: build for build in one.builds}
    for build in other.builds:
        if builds.setdefault(build.name, build) != build:
            raise Conflict(build.name)
    return tuple(builds[name] for name in sorted(builds))


def _parts(
    files: dict[str, str | None], candidate: Candidate
) -> tuple[dict[str, str | None], dict[str, Scalar], tuple[Build, ...]]:
    return files, dict(candidate.knobs), tuple(sorted(candidate.builds, key=lambda b: b.name))
