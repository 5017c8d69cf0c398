"""The stopping rule's promises, by simulation from fixed seeds."""

import math
import random
from collections.abc import Callable, Iterator

import pytest

from protos.stopping import decide, estimate, log_e_value, lower_bound, upper_bound
from protos.trial import StopRule

RULE = StopRule(alpha=0.05, min_effect=0.03, min_units=4, max_units=24)
TURNS = StopRule(alpha=0.05, min_effect=0.05, min_units=8, max_units=96, unit="turns")
RUNS = 2000
Noise = Callable[[random.Random], Iterator[float]]


def independent(rng: random.Random) -> Iterator[float]:
    while True:
        yield rng.gauss(0.0, 0.03)


def drifting(rng: random.Random) -> Iterator[float]:
    """AR(0.5) noise on a machine that slows down by half a per cent a block."""
    state = drift = 0.0
    while True:
        state = 0.5 * state + rng.gauss(0.0, 0.03)
        drift += 0.005
        yield state + drift


def heavy_tailed(rng: random.Random) -> Iterator[float]:
    while True:
        yield 0.02 * rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1.0, 1.0))


def ratios_of(noise: Noise, effect: float, rng: random.Random) -> Iterator[float]:
    """Log-ratios of pairs: two blocks in a random order, each with its own time's noise."""
    blocks = noise(rng)
    while True:
        first, second = next(blocks), next(blocks)
        order = 1.0 if rng.random() < 0.5 else -1.0
        yield effect + order * (first - second)


def run(noise: Noise, effect: float, seed: int, rule: StopRule = RULE) -> tuple[str, list[float]]:
    stream, ratios = ratios_of(noise, effect, random.Random(seed)), []
    while True:
        ratios.append(next(stream))
        word = decide(ratios, rule)
        if word != "continue":
            return word, ratios


def bursts(rng: random.Random) -> Iterator[float]:
    """Calm blocks of 2 % noise; now and then a dozen of them at 20 %."""
    left = 0
    while True:
        left = 12 if rng.random() < 0.02 else max(0, left - 1)
        yield rng.gauss(0.0, 0.2 if left else 0.02)


@pytest.mark.parametrize("noise", [independent, drifting, heavy_tailed, bursts])
@pytest.mark.parametrize("rule", [RULE, TURNS])
def test_the_error_rate_at_no_effect_keeps_to_alpha(noise: Noise, rule: StopRule) -> None:
    words = [run(noise, 0.0, seed, rule)[0] for seed in range(RUNS)]
    # Ville's bound is 0.05 a direction; a simulation of 2,000 may show 0.0650 by chance (3 sd).
    assert words.count("faster") / RUNS <= 0.065
    assert words.count("slower") / RUNS <= 0.065


@pytest.mark.parametrize("noise", [independent, drifting, heavy_tailed])
def test_no_gain_is_rarely_said_of_a_gain_of_the_minimum_effect(noise: Noise) -> None:
    words = [run(noise, RULE.min_effect, seed)[0] for seed in range(RUNS)]
    assert words.count("no_gain") / RUNS <= 0.065


@pytest.mark.parametrize("noise", [independent, drifting, heavy_tailed])
def test_the_bounds_hold_at_the_moment_of_stopping(noise: Noise) -> None:
    effect, missed = 0.05, 0
    for seed in range(400):
        _, ratios = run(noise, effect, seed)
        low, high = lower_bound(ratios, RULE.alpha), upper_bound(ratios, RULE.alpha)
        missed += (low is not None and low > effect) or (high is not None and high < effect)
    assert missed / 400 <= 0.14  # 0.05 a direction, and three standard deviations


def test_a_gain_of_a_quarter_is_seen_within_eight_pairs() -> None:
    found = [run(independent, 0.25, seed) for seed in range(500)]
    assert sum(word == "faster" for word, _ in found) >= 495
    assert sorted(len(ratios) for _, ratios in found)[250] <= 8


def test_a_gain_of_ten_per_cent_is_nearly_always_seen() -> None:
    words = [run(independent, 0.10, seed)[0] for seed in range(500)]
    assert words.count("faster") >= 0.9 * 500


def test_no_decision_falls_before_min_pairs_nor_after_max_pairs() -> None:
    assert decide([0.5] * 3, RULE) == "continue"
    assert decide([0.0, 0.001] * 12, StopRule(max_units=24, min_effect=0.0001)) == "inconclusive"


def test_a_fixed_plan_always_runs_all_its_pairs() -> None:
    rule = StopRule(mode="fixed", max_units=10)
    assert decide([0.5] * 9, rule) == "continue"
    assert decide([0.5] * 10, rule) == "faster"


def test_the_evidence_falls_as_the_asserted_effect_grows() -> None:
    ratios = [0.02, 0.05, -0.01, 0.04]
    values = [log_e_value(ratios, theta) for theta in (-0.1, 0.0, 0.05, 0.1)]
    assert values == sorted(values, reverse=True)


def test_the_sides_are_symmetric() -> None:
    ratios = [0.02, 0.05, -0.01, 0.04, 0.06, 0.03]
    mirrored = [-ratio for ratio in ratios]
    low, high = lower_bound(ratios, 0.2), upper_bound(mirrored, 0.2)
    assert low is not None
    assert high is not None
    assert low == pytest.approx(-high, abs=1e-9)


def test_extreme_ratios_overflow_nothing() -> None:
    assert decide([300.0] * 8, RULE) == "faster"
    assert decide([-300.0] * 8, RULE) == "slower"


def test_turns_are_bet_on_so_that_a_wild_one_costs_little() -> None:
    """Eleven turns that agree on 4 %, and one far off: turns still decide, pairs don't."""
    ratios = [0.04, 0.05, 0.03, 0.04, 0.05, -0.4, 0.04, 0.06, 0.04, 0.03, 0.05, 0.04]
    assert log_e_value(ratios, 0.0, unit="turns") > math.log(20.0) > log_e_value(ratios, 0.0)


def test_no_data_gives_no_bound_and_no_estimate() -> None:
    assert lower_bound([], 0.05) is None
    assert upper_bound([], 0.05) is None
    with pytest.raises(ValueError, match="no units"):
        estimate([])


def test_the_estimate_is_the_median() -> None:
    assert estimate([0.1, 5.0, 0.2]) == 0.2
    assert estimate([0.1, 0.3]) == pytest.approx(0.2)
