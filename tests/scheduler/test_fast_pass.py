"""What a campaign's own slow trials make of the fast tier's pass."""

from __future__ import annotations

import copy

import msgspec

from protos import events as e
from scheduler.fold import apply
from scheduler.state import State
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import CAMPAIGN, knob


def small_winners_that_lose(folded: Folded, count: int) -> None:
    """Fast gains of 1 % that the slow tier doesn't find."""
    for number in range(count):
        candidate = folded.admit(knob(f"small{number}"))
        folded.judge(candidate, "fast", gain=0.010 + number * 1e-4)
        folded.judge(candidate, "slow", word="no_gain", gain=0.001)


def test_any_fast_win_gets_a_slow_trial_while_little_is_known():
    folded = Folded()
    small_winners_that_lose(folded, 8)

    another = folded.admit(knob("another"))
    folded.judge(another, "fast", gain=0.012)

    assert folded.stage(another) == "won_fast"


def test_once_nine_small_wins_have_come_to_nothing_the_next_small_one_gets_no_slow_trial():
    folded = Folded()
    small_winners_that_lose(folded, 9)

    small, large = folded.admit(knob("s")), folded.admit(knob("l"))
    folded.judge(small, "fast", gain=0.012)
    folded.judge(large, "fast", gain=0.08)

    assert folded.stage(small) == "done"
    assert "seldom wins a slow trial" in folded.campaign.candidates[small.id].reason
    assert folded.stage(large) == "won_fast"


def test_who_passed_before_the_cut_rose_keeps_the_pass():
    folded = Folded()
    early = folded.admit(knob("early"))
    folded.judge(early, "fast", gain=0.012)
    small_winners_that_lose(folded, 9)

    assert folded.stage(early) == "won_fast"
    folded.judge(early, "slow", gain=0.07)
    assert folded.stage(early) == "won_slow"


def test_a_voided_slow_trial_no_longer_counts():
    folded = Folded()
    small_winners_that_lose(folded, 9)
    entry = next(c for c in folded.campaign.candidates.values() if "slow" in c.trials)
    folded.add(e.TrialVoided(CAMPAIGN, entry.trials["slow"], "a weight had changed"))

    small = folded.admit(knob("small"))
    folded.judge(small, "fast", gain=0.012)

    assert folded.stage(small) == "won_fast"


def test_a_replay_gives_the_same_passes():
    folded = Folded()
    small_winners_that_lose(folded, 12)
    again = State()
    for seq, time_s, event in copy.deepcopy(folded.log):
        apply(again, seq, time_s, event)

    assert msgspec.json.encode(again) == msgspec.json.encode(folded.state)
