"""Which engines are kept up, when they are rebuilt, and what an idle host finds out."""

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from engine_host import processes
from engine_host.block import serve
from engine_host.child import confine
from engine_host.errors import EngineLostError, HostError, NotHotError
from engine_host.measure import first_request
from engine_host.reproof import damaged_weights, reprove
from engine_host.residency import KEPT_RELEASES, Residency
from engine_host.strategies import ForkStrategy, SpareStrategy, strategy_for
from engine_host.targets import prepare_target
from protos.target import Target
from protos.trial import Limits, Request, Side
from services.blobs import DirectoryBlobs

FAKE = Target("fake", "anything")
BUILT: list[tuple[str, str]] = []


@pytest.fixture
def noted(home: Path) -> Iterator[Residency]:
    """A residency that notes which engines it built, and why."""
    BUILT.clear()
    blobs = DirectoryBlobs(home / "blobs")
    made = prepare_target(FAKE, "campaign", home, blobs)
    up = Residency(
        "fake",
        made.model,
        made.start_side,
        blobs,
        home,
        ForkStrategy(),
        on_built=lambda release, reason, _: BUILT.append((release, reason)),
    )
    up.bring_up()
    yield up
    up.close()


def release_of(residency: Residency, home: Path, number: int) -> Side:
    """Another release: the start with one more comment."""
    blobs = DirectoryBlobs(home / "blobs")
    text = blobs.get(residency.start.files["fake/model.py"]).decode() + f"# {number}\n"
    files = {**residency.start.files, "fake/model.py": blobs.put(text.encode())}
    return Side(f"r{number}", files, {}, {})


def test_the_start_is_built_once_and_used_again(noted: Residency):
    for _ in range(3):
        noted.candidate(noted.start, "hot", Limits()).end()
    assert [(noted.start.release, "start")] == BUILT


def test_a_promoted_release_gets_an_engine_of_its_own(noted: Residency, home: Path):
    promoted = release_of(noted, home, 1)
    process, _ = noted.incumbent(promoted, Limits())
    process.thaw()
    assert serve(process, [first_request(512)], 5.0).requests[0].finish == "length"
    assert BUILT[-1] == ("r1", "promotion")
    assert set(noted.residents()) == {
        noted.start.release,
        "r1",
    }


def test_only_the_start_and_the_latest_releases_stay_up(noted: Residency, home: Path):
    for number in range(1, 5):
        noted.incumbent(release_of(noted, home, number), Limits())
    assert set(noted.residents()) == {noted.start.release, "r3", "r4"}
    assert KEPT_RELEASES == 2


def test_a_candidate_on_a_release_that_was_never_seen_whole_goes_warm(noted: Residency, home: Path):
    side = msgspec.structs.replace(
        release_of(noted, home, 9), candidate="c1", delta=("fake/model.py",)
    )
    process = noted.bring(side, "hot", Limits())
    assert process.rung == "warm"
    process.end()


def test_a_dead_zygote_is_replaced_for_doubt_and_trials_go_on(noted: Residency):
    resident = noted.residents()[noted.start.release]
    for pid in processes.tree(resident.pid):  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGKILL)
    process = noted.bring(noted.start, "hot", Limits())
    assert serve(process, [first_request(512)], 5.0).requests[0].finish == "length"
    assert BUILT[-1] == (noted.start.release, "doubt")
    process.end()


def test_a_dead_incumbent_is_forked_again(noted: Residency):
    first, _ = noted.incumbent(noted.start, Limits())
    assert processes.kill(first.pid)
    second, fresh = noted.incumbent(noted.start, Limits())
    assert fresh
    assert second.pid != first.pid
    assert second.alive()


def test_an_engine_that_cannot_be_built_is_the_hosts_loss_with_its_line(
    noted: Residency, home: Path
):
    blobs = DirectoryBlobs(home / "blobs")
    files = {**noted.start.files, "fake/model.py": blobs.put(b"raise RuntimeError('broken')\n")}
    with pytest.raises(EngineLostError, match="broken"):
        noted.incumbent(Side("r1", files, {}, {}), Limits())


def test_proof_of_untouched_engines_finds_nothing(noted: Residency):
    assert reprove(noted) == {noted.start.release: ""}


def test_a_tree_that_changed_on_disk_is_found(noted: Residency):
    tree = Path(noted.residents()[noted.start.release].spec.tree)
    path = tree / "fake" / "model.py"
    text = path.read_text()
    path.write_text(text + "# changed\n")
    assert "tree" in reprove(noted)[noted.start.release]
    path.write_text(text)
    assert reprove(noted) == {noted.start.release: ""}


def test_an_extra_file_in_a_tree_is_found(noted: Residency):
    extra = Path(noted.residents()[noted.start.release].spec.tree) / "fake" / "extra.py"
    extra.write_text("")
    assert "tree" in reprove(noted)[noted.start.release]
    extra.unlink()


def test_weights_that_changed_are_found_by_name(noted: Residency):
    path = noted.model.folder / "weights.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "weights.bin" in damaged_weights(noted.model.folder)
    path.write_bytes(content)
    assert damaged_weights(noted.model.folder) == ""


def test_other_golden_tokens_than_when_it_was_built_are_found(noted: Residency):
    noted.residents()[noted.start.release].golden[0][0] += 1
    assert "golden" in reprove(noted)[noted.start.release]


def test_a_rebuilt_engine_is_another_process_and_its_trials_are_gone(noted: Residency):
    old, _ = noted.incumbent(noted.start, Limits())
    resident = noted.residents()[noted.start.release]
    noted.rebuild(noted.start.release, "doubt")
    assert not old.alive()
    assert noted.residents()[noted.start.release] is not resident
    assert BUILT[-1] == (noted.start.release, "doubt")


def test_the_reference_is_the_start_in_float32_and_stays(noted: Residency):
    reference = noted.reference()
    assert noted.reference() is reference
    assert reference.alive()


@pytest.fixture
def spares(home: Path) -> Iterator[Residency]:
    blobs = DirectoryBlobs(home / "blobs")
    made = prepare_target(FAKE, "campaign", home, blobs)
    up = Residency("fake", made.model, made.start_side, blobs, home, SpareStrategy(size=2))
    up.bring_up()
    yield up
    up.close()


def test_a_spare_serves_like_a_fork(spares: Residency, noted: Residency):
    request = Request(5, (9, 8, 7), 6)
    said = []
    for up in (spares, noted):
        process = up.bring(up.start, "hot", Limits())
        said.append(serve(process, [request], 5.0).requests[0].tokens)
        process.end()
    assert said[0] == said[1]


def test_a_spare_is_patched_hot_and_thrown_away(spares: Residency, home: Path):
    blobs = DirectoryBlobs(home / "blobs")
    text = blobs.get(spares.start.files["fake/model.py"]).decode().replace("% VOCAB", "* 0 + 7")
    files = {**spares.start.files, "fake/model.py": blobs.put(text.encode())}
    side = Side(spares.start.release, files, {}, {}, "c1", "hot", ("fake/model.py",))
    process = spares.bring(side, "hot", Limits())
    assert process.rung == "hot"
    assert set(serve(process, [Request(1, (1,), 4)], 5.0).requests[0].tokens) == {7}
    assert process.end()
    fresh = spares.bring(spares.start, "hot", Limits())
    assert set(serve(fresh, [Request(1, (1,), 4)], 5.0).requests[0].tokens) != {7}
    fresh.end()


def test_a_spare_refuses_what_is_not_hot_and_a_bare_one_takes_it(spares: Residency, home: Path):
    side = Side(spares.start.release, spares.start.files, {"context": 64}, {}, "c1")
    process = spares.candidate(side, "hot", Limits())
    with pytest.raises(NotHotError):
        spares.load(process, side, 5.0)
    process.end()
    warm = spares.bring(side, "warm", Limits())
    assert warm.rung == "warm"
    warm.end()


def test_the_pool_is_refilled_between_blocks_only(spares: Residency):
    resident = spares.residents()[spares.start.release]
    taken = [resident.take(Limits())[0] for _ in range(2)]
    assert len(resident._pool) == 0  # type: ignore[attr-defined]
    spares.refill()
    assert len(resident._pool) == 2  # type: ignore[attr-defined]
    for process in taken:
        process.end()


def test_a_group_has_one_process_a_rank(spares: Residency):
    spec = spares.residents()[spares.start.release].spec
    resident = SpareStrategy(size=1).start(spec, "warm", ranks=2)
    group = resident.take(Limits())
    assert len(group) == 2
    assert len({process.pid for process in group}) == 2
    for process in group:
        process.end()
    resident.close()
    with pytest.raises(HostError, match="one rank"):
        ForkStrategy().start(spec, "warm", ranks=2)


def test_the_device_class_chooses_the_strategy():
    assert strategy_for("cpu").name == "fork"
    assert strategy_for("cuda-h200").name == "spares"


def test_a_machine_that_cannot_confine_refuses_in_one_line(monkeypatch: pytest.MonkeyPatch):
    def refused(flags: int) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(confine.syscalls, "unshare", refused)
    with pytest.raises(confine.Unprotected, match=r"^[^\n]*user namespaces[^\n]*$"):
        confine.enter_view(confine.View(()))
