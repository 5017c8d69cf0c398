"""The battery as it ships: every row covered, every fixture documented and applicable."""

from __future__ import annotations

import ast

import pytest

from benchmarks.battery import CAUGHT, CHEATS, CONTROLS, ROWS, Fixture, null_patches
from benchmarks.battery.nulls import PLACES
from benchmarks.sources import slim_sources
from evaluator.scope import Change, scope_of
from services.bounds import binomial_upper

SOURCES = slim_sources()
EVERY = [pytest.param(fixture, id=fixture.name) for fixture in (*CHEATS, *CONTROLS)]


def python(files: dict[str, str]) -> dict[str, str]:
    return {path: text for path, text in files.items() if path.endswith(".py")}


def test_every_row_of_the_table_has_a_cheat() -> None:
    assert {fixture.row for fixture in CHEATS} == set(ROWS)
    assert len(CHEATS) >= 30
    assert len(CONTROLS) >= 10


def test_names_are_told_apart() -> None:
    names = [fixture.name for fixture in (*CHEATS, *CONTROLS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("fixture", [p for p in EVERY if p.values[0] in CHEATS])
def test_a_cheat_says_its_method_its_origin_and_what_must_become_of_it(fixture: Fixture) -> None:
    assert "Origin:" in fixture.about
    assert "Expected:" in fixture.about
    assert fixture.expected
    assert set(fixture.expected) <= set(CAUGHT)


@pytest.mark.parametrize("fixture", EVERY)
def test_a_fixture_applies_to_the_start_release_and_parses(fixture: Fixture) -> None:
    made = fixture.make(SOURCES)
    assert made.files or made.knobs
    for path, text in python(made.files).items():
        assert text != SOURCES.get(path)
        ast.parse(text, path)


def test_null_patches_differ_and_are_functions_that_can_be_proved_to_run() -> None:
    made = list(null_patches(SOURCES, 2 * len(PLACES)))
    assert len({tuple(sorted(patch.files.items())) for patch in made}) == len(made)
    old = python(SOURCES)
    for patch in made:
        scope = scope_of(Change(old, old | patch.files))
        assert scope is not None
        assert scope.rung == "hot"
        assert len(scope.changed) == 1


def test_the_bound_on_a_share_is_the_exact_one() -> None:
    assert binomial_upper(0, 299, 0.05) == pytest.approx(1.0 - 0.05 ** (1 / 299), abs=1e-9)
    assert binomial_upper(5, 5, 0.05) == 1.0
    with pytest.raises(ValueError, match="no share"):
        binomial_upper(3, 2, 0.05)
