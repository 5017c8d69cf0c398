"""Fast against slow: rank correlation, regret, missed winners, and the cut that follows."""

import math
import random

import pytest

from protos.trial import Interval, Verdict
from services.tiers import Seen, least_gain, regret, seen_of, tier_agreement

MIN_EFFECT = 0.05


def verdict(candidate: str, tier: str, word: str, gain: float | None) -> Verdict:
    interval = None if gain is None else Interval("output_tok_s", math.exp(gain), None, None, 8)
    return Verdict("t", candidate, tier, word, "", "", interval)  # type: ignore[arg-type]


def test_only_candidates_that_both_tiers_measured_and_found_correct_are_compared():
    verdicts = [
        verdict("both", "fast", "faster", 0.2),
        verdict("both", "slow", "faster", 0.1),
        verdict("fast only", "fast", "faster", 0.3),
        verdict("wrong", "fast", "faster", 0.3),
        verdict("wrong", "slow", "incorrect", 0.3),
        verdict("small", "fast", "faster", 0.02),
        verdict("small", "slow", "faster", 0.02),
        verdict("cold", "cold", "faster", 0.2),
    ]

    found = seen_of(verdicts, MIN_EFFECT)

    assert [(one.candidate, one.won) for one in found] == [("both", True), ("small", False)]
    assert found[0].fast == pytest.approx(0.2)


def test_tiers_that_agree_have_no_regret_and_miss_nothing():
    seen = [Seen(f"c{i}", i / 50, i / 60, "faster", i > 4) for i in range(1, 10)]

    found = tier_agreement(seen, MIN_EFFECT)

    assert found.tau == 1.0
    assert found.regret == 0.0
    assert (found.both, found.passed, found.confirmed, found.audited) == (9, 9, 5, 0)
    assert found.missed == ()


def test_a_favourite_that_is_not_the_best_is_what_choosing_by_the_fast_tier_costs():
    seen = [Seen("a", 0.3, 0.10, "faster", True), Seen("b", 0.2, 0.25, "faster", True)]

    assert regret(seen) == pytest.approx(0.15)
    assert regret(seen[:1]) is None


def test_an_audited_candidate_that_wins_was_missed():
    seen = [
        Seen("a", 0.3, 0.2, "faster", True),
        Seen("b", 0.01, 0.2, "no_gain", True),
        Seen("c", 0.01, 0.0, "inconclusive", False),
    ]

    found = tier_agreement(seen, MIN_EFFECT)

    assert (found.audited, found.missed) == (2, ("b",))


def test_a_campaign_without_slow_trials_says_so():
    found = tier_agreement([], MIN_EFFECT)

    assert (found.both, found.tau, found.regret, found.least_gain) == (0, None, None, 0.0)


def test_the_cut_stays_at_nothing_until_nine_losers_show_that_it_may_rise():
    losers = [(0.01 + i / 1000, False) for i in range(9)]

    assert least_gain(losers[:8], MIN_EFFECT) == 0.0
    assert least_gain([*losers, (0.03, True)], MIN_EFFECT) == pytest.approx(0.03)
    assert least_gain(losers, MIN_EFFECT) == MIN_EFFECT


def test_one_winner_among_the_small_ones_keeps_the_cut_below_it():
    losers = [(0.02 + i / 1000, False) for i in range(9)]

    assert least_gain([(0.01, True), *losers], MIN_EFFECT) == 0.0
    assert least_gain([*losers, (0.035, True)], MIN_EFFECT) == pytest.approx(0.035)


def test_the_cut_never_passes_the_least_gain_that_is_worth_a_release():
    assert least_gain([(0.5 + i / 1000, False) for i in range(40)], MIN_EFFECT) == 0.0
    assert least_gain([(0.001, False)] * 40, MIN_EFFECT) <= MIN_EFFECT


def test_in_simulated_campaigns_the_cut_spares_losers_and_hardly_a_winner():
    rng = random.Random(5)
    spared = missed = 0
    for _ in range(200):
        passed: list[tuple[float, bool]] = []
        for _ in range(40):
            true = max(0.0, rng.gauss(0.03, 0.04))
            fast = true + rng.gauss(0.0, 0.01)
            won = true + rng.gauss(0.0, 0.005) >= MIN_EFFECT
            if fast < least_gain(passed, MIN_EFFECT):
                spared += not won
                missed += won
            else:
                passed.append((fast, won))
    assert spared > 500
    assert missed < spared * 0.1
