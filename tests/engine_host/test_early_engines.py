"""Engines whose modules can be imported only once: what a fork follows in place, and what not."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_host import zygotes
from engine_host.block import serve
from engine_host.measure import first_request
from engine_host.residency import Residency
from engine_host.strategies import ForkStrategy
from engine_host.targets import prepare_target
from engine_host.trial_process import TrialProcess
from protos.target import Target
from protos.trial import Limits, Side
from services.blobs import DirectoryBlobs

BODY = ("token = pick(state)\n        return token,", "token = 7\n        return token,")
CONSTRUCTOR = ("self.rounds = rounds", "self.rounds = 2 * rounds")
BASES = ("class Model:", "class Model(object):")
REBOUND = ("def spin(rounds: int) -> None:", "@staticmethod\ndef spin(rounds: int) -> None:")


@pytest.fixture
def early(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Residency]:
    kind = dataclasses.replace(zygotes.KINDS["fake"], early=True, imports=("fake",))
    monkeypatch.setitem(zygotes.KINDS, "fake", kind)
    blobs = DirectoryBlobs(home / "blobs")
    made = prepare_target(Target("fake", "anything"), "campaign", home, blobs)
    up = Residency("fake", made.model, made.start_side, blobs, home, ForkStrategy())
    up.bring_up()
    yield up
    up.close()


def changed(early: Residency, home: Path, edit: tuple[str, str], **knobs: int) -> Side:
    blobs = DirectoryBlobs(home / "blobs")
    text = blobs.get(early.start.files["fake/model.py"]).decode()
    assert edit[0] in text
    files = dict(early.start.files)
    files["fake/model.py"] = blobs.put(text.replace(*edit).encode())
    return Side(early.start.release, files, dict(knobs), {}, "c1", "hot", ("fake/model.py",))


def tokens_of(process: TrialProcess) -> tuple[int, ...]:
    return serve(process, [first_request(512)], 5.0).requests[0].tokens


@pytest.mark.parametrize("rung", ["hot", "warm"])
def test_a_changed_body_is_followed_where_it_was_imported(early: Residency, home: Path, rung: str):
    process = early.bring(changed(early, home, BODY), rung, Limits())
    assert process.rung == rung
    assert set(tokens_of(process)) == {7}
    process.end()


def test_a_changed_constructor_builds_another_engine_warm(early: Residency, home: Path):
    process = early.bring(changed(early, home, CONSTRUCTOR), "hot", Limits())
    assert process.rung == "warm"
    assert tokens_of(process)
    process.end()


@pytest.mark.parametrize("edit", [BASES, REBOUND], ids=["bases", "decorator"])
def test_what_needs_another_import_starts_cold(early: Residency, home: Path, edit: tuple[str, str]):
    process = early.bring(changed(early, home, edit), "hot", Limits())
    assert process.rung == "cold"
    assert tokens_of(process)
    process.end()


def test_a_knob_of_the_process_starts_cold_and_one_of_the_engine_warm(early: Residency, home: Path):
    for knob, rung in (("copies", "cold"), ("context", "warm"), ("rounds", "hot")):
        process = early.bring(
            changed(early, home, ("Burn", "Use"), **{knob: 4 if knob == "copies" else 100}),
            "hot",
            Limits(),
        )
        assert process.rung == rung
        process.end()


def test_a_fork_of_the_bare_zygote_has_the_tokens_of_the_warm_one(early: Residency):
    warm = early.bring(early.start, "hot", Limits())
    bare = early.bring(early.start, "warm", Limits())
    assert tokens_of(warm) == tokens_of(bare)
    warm.end()
    bare.end()
