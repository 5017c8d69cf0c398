from __future__ import annotations

import msgspec
import pytest

from protos.candidate import Build, Candidate
from protos.ids import digest_bytes
from protos.release import Release
from scheduler.rebase import MergeConflict, rebase

BLOBS: dict[str, bytes] = {}


def blob(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode()
    digest = digest_bytes(data)
    BLOBS[digest] = data
    return digest


BASE_TEXT = "one\ntwo\nthree\nfour\nfive\n"
BASE = Release("c", 0, {"m.py": blob(BASE_TEXT), "n.py": blob("n\n")}, knobs={"threads": 1})


def newer(**changes: object) -> Release:
    return msgspec.structs.replace(BASE, number=1, parent=BASE.id, **changes)


def patch(**changes: object) -> Candidate:
    given = Candidate("c", BASE.id, files={"m.py": blob(BASE_TEXT.replace("one", "ONE"))})
    return msgspec.structs.replace(given, **changes)


def test_a_file_that_only_the_candidate_changed_is_kept() -> None:
    onto = newer(files={**BASE.files, "n.py": blob("N\n")})
    merged = rebase(patch(), BASE, onto, BLOBS.__getitem__)
    assert merged.candidate.files == patch().files
    assert merged.candidate.base == onto.id
    assert merged.candidate.parents == (patch().id,)
    assert merged.candidate.id != patch().id
    assert merged.blobs == {}


def test_changes_of_different_lines_are_merged() -> None:
    onto = newer(files={**BASE.files, "m.py": blob(BASE_TEXT.replace("five", "FIVE"))})
    merged = rebase(patch(), BASE, onto, BLOBS.__getitem__)
    digest = merged.candidate.files["m.py"]
    assert digest is not None
    assert merged.blobs[digest] == b"ONE\ntwo\nthree\nfour\nFIVE\n"


def test_changes_of_the_same_line_are_a_conflict_that_names_the_file() -> None:
    onto = newer(files={**BASE.files, "m.py": blob(BASE_TEXT.replace("one", "1"))})
    with pytest.raises(MergeConflict, match=r"m\.py: both change the same lines"):
        rebase(patch(), BASE, onto, BLOBS.__getitem__)


def test_a_binary_file_that_both_change_is_a_conflict() -> None:
    onto = newer(files={**BASE.files, "m.py": blob(b"\xff\xfe\x00")})
    with pytest.raises(MergeConflict, match="not text"):
        rebase(patch(), BASE, onto, BLOBS.__getitem__)


def test_a_file_that_one_deletes_and_the_other_changes_is_a_conflict() -> None:
    onto = newer(files={**BASE.files, "m.py": blob("new\n")})
    with pytest.raises(MergeConflict, match="deletes"):
        rebase(patch(files={"m.py": None}), BASE, onto, BLOBS.__getitem__)


def test_a_file_that_both_add_differently_is_a_conflict() -> None:
    onto = newer(files={**BASE.files, "new.py": blob("a\n")})
    with pytest.raises(MergeConflict, match="both add it"):
        rebase(patch(files={"new.py": blob("b\n")}), BASE, onto, BLOBS.__getitem__)


def test_a_deletion_survives_when_the_newer_release_left_the_file_alone() -> None:
    onto = newer(knobs={"threads": 2})
    merged = rebase(patch(files={"n.py": None}), BASE, onto, BLOBS.__getitem__)
    assert merged.candidate.files == {"n.py": None}


def test_the_candidates_knobs_are_tried_again_and_equal_ones_dropped() -> None:
    onto = newer(knobs={"threads": 2, "chunk": 64})
    mine = patch(files={}, knobs={"threads": 4, "chunk": 64})
    merged = rebase(mine, BASE, onto, BLOBS.__getitem__)
    assert merged.candidate.knobs == {"threads": 4}


def test_true_and_one_are_different_knob_values() -> None:
    mine = patch(files={}, knobs={"flag": True})
    merged = rebase(mine, BASE, newer(knobs={"flag": 1}), BLOBS.__getitem__)
    assert merged.candidate.knobs == {"flag": True}


def test_a_candidate_that_the_newer_release_already_holds_is_retired() -> None:
    onto = newer(files={**BASE.files, **{p: d for p, d in patch().files.items() if d}})
    with pytest.raises(MergeConflict, match="release 1 already holds all of it"):
        rebase(patch(), BASE, onto, BLOBS.__getitem__)


def test_a_recipe_stays_with_its_changed_sources() -> None:
    build = Build("k", ("k.c",))
    onto = newer(builds=(build,), libraries={"k": "0" * 64})
    mine = patch(files={"k.c": blob("int x;\n")}, builds=(build,))
    assert rebase(mine, BASE, onto, BLOBS.__getitem__).candidate.builds == (build,)


def test_recipes_that_differ_are_a_conflict() -> None:
    onto = newer(builds=(Build("k", ("k.c",), ("-O2",)),))
    mine = patch(files={}, builds=(Build("k", ("k.c",), ("-O3", "-mavx2")),))
    with pytest.raises(MergeConflict, match="library k"):
        rebase(mine, BASE, onto, BLOBS.__getitem__)
