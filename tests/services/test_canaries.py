"""What is wrong depends on what a canary is; bounds follow the number that was judged."""

import pytest

from protos.canary import KIND_OF_TURN, KINDS, is_wrong, kind_of, label_of
from services.canaries import canary_lines


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_tells_the_kind(kind):
    assert kind_of(label_of(kind, "a gain: of a null", 12)) == kind


@pytest.mark.parametrize("label", ["", "knobs threads=1", "canary 3", "canary 3, joke: x"])
def test_other_labels_tell_none(label):
    assert kind_of(label) is None


@pytest.mark.parametrize(
    ("kind", "word", "wrong"),
    [
        ("null", "faster", True),
        ("null", "no_gain", False),
        ("cheat", "faster", True),
        ("cheat", "incorrect", False),
        ("gain", "faster", False),
        ("gain", "no_gain", True),
        ("gain", "inconclusive", True),
    ],
)
def test_a_false_accept_and_a_false_reject_are_wrong(kind, word, wrong):
    assert is_wrong(kind, word) is wrong


def test_nulls_come_most_often_and_every_kind_comes():
    assert set(KIND_OF_TURN) == set(KINDS)
    assert KIND_OF_TURN.count("null") > len(KIND_OF_TURN) / 2


def test_lines_count_by_kind_and_tier_with_exact_bounds():
    judged = [("null", "fast", "no_gain")] * 9 + [("null", "fast", "faster")]
    judged += [("null", "slow", "no_gain"), ("gain", "fast", "faster")]
    fast, slow, gain = canary_lines(judged)
    assert (fast.kind, fast.tier, fast.judged, fast.wrong) == ("null", "fast", 10, 1)
    assert fast.at_most == pytest.approx(0.394, abs=0.001)  # Clopper-Pearson, 1 of 10, one-sided
    assert (slow.judged, slow.wrong, slow.at_most) == (1, 0, pytest.approx(0.95))
    assert (gain.kind, gain.wrong) == ("gain", 0)
