from __future__ import annotations

from pathlib import Path

import msgspec

from protos import events as e
from scheduler import snapshot
from scheduler.fold import apply
from scheduler.snapshot import Snapshots
from scheduler.state import State
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import CAMPAIGN, knob


def eventful() -> Folded:
    given = Folded()
    given.promote(given.admit(knob("a")))
    for name in "bcd":
        given.admit(knob(name, base=given.campaign.releases[1].id))
    lost = given.grant(knob("b", base=given.campaign.releases[1].id), "fast")
    given.add(e.TrialLost(CAMPAIGN, lost.id, lost.epoch, "gone"))
    given.judge(knob("c", base=given.campaign.releases[1].id), "fast", "no_gain")
    given.grant(knob("d", base=given.campaign.releases[1].id), "fast")
    given.add(e.CampaignPaused(CAMPAIGN, "by hand", 12.5))
    return given


def test_a_snapshot_and_the_tail_equal_a_full_replay_wherever_it_was_taken(tmp_path: Path) -> None:
    log = eventful().log
    whole = State()
    for seq, time_s, event in log:
        apply(whole, seq, time_s, event)
    for cut in range(len(log) + 1):
        early = State()
        for seq, time_s, event in log[:cut]:
            apply(early, seq, time_s, event)
        snapshots = Snapshots(tmp_path / "s.msgpack")
        snapshots.save(early)
        restored = snapshots.load(head=len(log))
        assert restored.last_seq == cut
        for seq, time_s, event in log:
            apply(restored, seq, time_s, event)
        assert restored == whole


def test_a_snapshot_of_another_version_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "s.msgpack"
    other = snapshot.Snapshot(snapshot.VERSION + 1, 3, State(last_seq=3))
    path.write_bytes(msgspec.msgpack.encode(other))
    assert Snapshots(path).load(head=10) == State()


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "s.msgpack"
    Snapshots(path).save(eventful().state)
    path.write_bytes(path.read_bytes()[:-40])
    assert Snapshots(path).load(head=1000) == State()


def test_a_snapshot_ahead_of_the_ledger_is_another_ledgers(tmp_path: Path) -> None:
    given = eventful()
    snapshots = Snapshots(tmp_path / "s.msgpack")
    snapshots.save(given.state)
    assert snapshots.load(head=given.state.last_seq - 1) == State()
    assert snapshots.load(head=given.state.last_seq) == given.state
