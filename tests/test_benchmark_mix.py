"""The benchmark's mix fits the engine it was written for."""

from __future__ import annotations

import itertools

from benchmarks.mix import graded, mix
from benchmarks.sources import slim_sources


def test_every_candidate_of_the_mix_applies_and_differs_from_all_others() -> None:
    entries = list(itertools.islice(mix(slim_sources()), 400))
    assert len({repr((entry.files, entry.knobs)) for entry in entries}) == 400
    assert {entry.kind for entry in entries} == {"knob", "function", "module", "kernel", "bad"}


def test_the_mix_is_the_same_for_the_same_seed() -> None:
    sources = slim_sources()
    one, two = (list(itertools.islice(mix(sources, seed=5), 60)) for _ in range(2))
    assert one == two


def test_the_graded_entries_apply() -> None:
    entries = graded(slim_sources())
    assert len({entry.label for entry in entries}) == len(entries) == 20
