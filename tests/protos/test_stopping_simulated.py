"""The stopping rule over 10,000 seeded runs of each noise: errors, power, what is printed."""

import random

import numpy as np
import pytest

from benchmarks.error_rates import (
    COLD,
    DECISIONS,
    FAST,
    PAIRS_OF_60_MS,
    SLOW,
    TURNS,
    TURNS_OF_15_MS,
    Rule,
    decide_all,
    draw_units,
    error_rate,
    false_promotions,
    log_e_path,
    power,
    upper_bound,
    winners_curse,
)
from benchmarks.simulated_noise import NOISES, independent
from protos.stopping import decide, log_e_value
from protos.trial import StopRule

RUNS = 10_000


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rule", [FAST, TURNS, SLOW], ids=["fast", "turns", "slow"])
def test_each_wrong_word_stays_within_its_alpha_whatever_the_noise(noise, rule):
    rate = error_rate(noise, rule, RUNS, seed=11)

    # The share is a draw itself: its standard error at alpha is 0.2 % of the runs.
    slack = 3 * (rule.alpha * (1 - rule.alpha) / RUNS) ** 0.5
    assert max(rate.faster, rate.slower, rate.no_gain) <= rule.alpha + slack
    assert rate.covered >= 1 - 2 * rule.alpha - 2 * slack


def test_looking_after_every_unit_of_a_long_trial_costs_no_error():
    rule = Rule(0.05, 0.05, 4, 400)

    rates = [error_rate(noise, rule, RUNS // 5, seed=3) for noise in NOISES]

    assert max(max(rate.faster, rate.slower) for rate in rates) <= 0.05 + 3 * 0.005


@pytest.mark.parametrize("noise", NOISES)
def test_of_ten_thousand_candidates_without_effect_none_passes_all_tiers(noise):
    found = false_promotions(noise, RUNS, seed=5)

    assert found.won_fast <= FAST.alpha + 0.0066
    assert found.won_slow <= FAST.alpha * SLOW.alpha + 0.0012
    assert found.promoted <= 3  # the bound gives 0.6 in 10,000; more than 3 would be one in 300
    assert found.bound == FAST.alpha * SLOW.alpha * COLD.alpha


def test_gains_are_seen_in_the_engine_seconds_that_are_stated():
    seen = {gain: power(gain, PAIRS_OF_60_MS, 2000, 1, 0.05) for gain in (0.02, 0.05, 0.20)}

    assert seen[0.05].seen_10s >= 0.99
    assert seen[0.02].seen_10s >= 0.9
    assert all(
        power(0.05, kind, 2000, 1, 0.05).seen_10s >= 0.9
        for kind in (PAIRS_OF_60_MS, TURNS_OF_15_MS)
    )
    assert seen[0.20].p90_s is not None
    assert seen[0.20].p90_s < seen[0.05].p90_s < seen[0.02].p90_s  # type: ignore[operator]


def test_what_is_printed_is_free_of_the_winners_curse_though_the_choice_is_not():
    curse = winners_curse(RUNS, 20, seed=2)

    assert curse.chosen > 0.02  # the best of twenty looks better than it is
    assert abs(curse.printed) < 4 * curse.printed_error
    assert curse.covered >= 0.95


def test_the_simulation_decides_as_the_rule_itself_does():
    units = draw_units(independent, 0.02, 50, FAST.max_units, seed=4)
    outcome = decide_all(units, FAST)

    rule = StopRule(FAST.alpha, FAST.min_effect, FAST.min_units, FAST.max_units)
    for row, said, count in zip(units.tolist(), outcome.said, outcome.units, strict=True):
        looks = range(1, FAST.max_units + 1)
        stop = next(n for n in looks if decide(row[:n], rule) != "continue")
        assert (decide(row[:stop], rule), stop) == (DECISIONS[said], count)


@pytest.mark.parametrize("unit", ["pairs", "turns"])
def test_the_simulated_evidence_is_the_rules_own(unit):
    rng = random.Random(3)
    units = [rng.gauss(0.01, 0.05) for _ in range(30)]

    path = log_e_path(np.array([units]), 0.004, -1.0, unit)[0]

    assert path.tolist() == pytest.approx(
        [log_e_value(units[: n + 1], 0.004, -1.0, unit) for n in range(30)]
    )


@pytest.mark.parametrize(
    ("hits", "runs", "bound"), [(0, 300, 0.0099361), (1, 300, 0.015715), (15, 300, 0.07595)]
)
def test_a_shares_upper_bound_is_the_exact_one(hits, runs, bound):
    assert upper_bound(hits, runs) == pytest.approx(bound, rel=1e-3)
