"""Every rewrite, with every setting, on the real tree: it applies, parses, builds and composes."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.playbook_trees import lay_out
from proposer.playbook import REWRITES, AnchorGoneError, Change, Rewrite
from proposer.playbook.fused import FUSED_LAYERS, FUSED_STEP, GRID4
from protos.candidate import MAX_FILES, MAX_SOURCE_BYTES


def _changes(rewrite: Rewrite, sources: dict[str, str]) -> Iterator[Change]:
    for settings in rewrite.settings():
        yield rewrite.rewrite(sources, settings)


def test_there_are_fifteen_rewrites_or_more_with_names_of_their_own() -> None:
    assert len(REWRITES) >= 15
    assert len({rewrite.name for rewrite in REWRITES}) == len(REWRITES)


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda r: r.name)
def test_every_setting_gives_sources_that_parse(rewrite: Rewrite, slim: dict[str, str]) -> None:
    assert rewrite.applies(slim)
    labels = [rewrite.label(settings) for settings in rewrite.settings()]
    assert len(set(labels)) == len(labels)
    for change in _changes(rewrite, slim):
        for path, text in change.files.items():
            assert path.startswith("slim/")
            if path.endswith(".py"):
                compile(ast.parse(text), path, "exec")
        assert {s for build in change.builds for s in build.sources} <= change.files.keys()
        assert len(change.files) <= MAX_FILES
        assert sum(map(len, change.files.values())) <= MAX_SOURCE_BYTES


def test_every_library_builds_without_a_warning(slim: dict[str, str], tmp_path: Path) -> None:
    seen: set[tuple[str, ...]] = set()
    for number, rewrite in enumerate(REWRITES):
        for change in _changes(rewrite, slim):
            sources = tuple(t for p, t in sorted(change.files.items()) if p.endswith(".c"))
            if sources and sources not in seen:
                seen.add(sources)
                folder = tmp_path / f"tree{number}-{len(seen)}"
                built = lay_out(slim, Change(change.files, change.builds), folder)
                assert all(Path(library).is_file() for library in built.values())
    assert len(seen) >= 5


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda r: r.name)
def test_a_rewrite_refuses_a_tree_that_lost_its_anchors(rewrite: Rewrite) -> None:
    for sources in ({}, {"fake/engine.py": "x = 1\n"}):
        assert not rewrite.applies(sources)


def test_edits_of_functions_refuse_a_tree_without_them() -> None:
    bare = {"slim/engine.py": "x = 1\n"}
    steps_only = [rewrite.name for rewrite in REWRITES if rewrite.applies(bare)]
    assert steps_only == ["huge-pages", "pinned-threads", "frozen-collector", "no-denormals"]


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda r: r.name)
def test_a_rewrite_refuses_or_still_parses_on_a_tree_it_changed(
    rewrite: Rewrite, slim: dict[str, str]
) -> None:
    best = rewrite.best_guess()
    changed = {**slim, **rewrite.rewrite(slim, best).files}
    try:
        again = rewrite.rewrite(changed, best)
    except AnchorGoneError:
        return
    for path, text in again.files.items():
        if path.endswith(".py"):
            ast.parse(text)


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda r: r.name)
def test_a_rewrite_lands_on_the_fused_step_or_refuses(
    rewrite: Rewrite, slim: dict[str, str]
) -> None:
    fused = {**slim, **FUSED_STEP.rewrite(slim, FUSED_STEP.best_guess()).files}
    try:
        change = rewrite.rewrite(fused, rewrite.best_guess())
    except AnchorGoneError:
        assert rewrite is FUSED_STEP
        return
    for path, text in change.files.items():
        if path.endswith(".py"):
            ast.parse(text)
    if "slim/engine.py" in change.files:
        assert "fused.advance" in change.files["slim/engine.py"]


def test_smaller_weights_take_the_place_of_a_fused_step_that_won(slim: dict[str, str]) -> None:
    fused = {**slim, **FUSED_STEP.rewrite(slim, FUSED_STEP.best_guess()).files}
    change = GRID4.rewrite(fused, GRID4.best_guess())
    assert sorted(change.files) == ["slim/csrc/fused.c", "slim/prepare/s00_fused.py"]
    assert "grid4_dot" in change.files["slim/csrc/fused.c"]


def test_preparation_steps_run_in_the_order_in_which_they_were_added(slim: dict[str, str]) -> None:
    huge = next(rewrite for rewrite in REWRITES if rewrite.name == "huge-pages")
    first = {**slim, **huge.rewrite(slim, huge.best_guess()).files}
    change = FUSED_LAYERS.rewrite(first, FUSED_LAYERS.best_guess())
    assert "slim/prepare/s00_huge_pages.py" in first
    assert "slim/prepare/s01_fused.py" in change.files


def test_settings_start_with_the_best_guess_and_refuse_others(slim: dict[str, str]) -> None:
    assert next(iter(FUSED_STEP.settings())) == FUSED_STEP.best_guess()
    with pytest.raises(ValueError, match="max_rows is one of"):
        FUSED_STEP.rewrite(slim, {**FUSED_STEP.best_guess(), "max_rows": 7})
    with pytest.raises(ValueError, match="takes"):
        FUSED_STEP.rewrite(slim, {})
