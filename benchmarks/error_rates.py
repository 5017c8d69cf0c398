"""How often the stopping rule is wrong, and how long it takes to be right: seeded simulations.

    python -m benchmarks.error_rates [--runs 10000] [--alpha 0.05] [--seed 1]

Nothing here is measured on an engine: units are drawn from noises that break the usual assumptions
(autocorrelation, heavy tails, drift, bursts), the order of each unit by a fair coin as a script
draws it, and the rule is the one of protos/stopping.py, computed for all runs at once. The last
line is JSON. Numbers are shares of runs, beside the upper end of their 95 % interval (Clopper and
Pearson 1934); times follow from a noise and a unit's length that are printed beside them.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulated_noise import NOISES, Array, Noise, heavy_light
from protos.stopping import BETS, TURN_BETS
from protos.trial import Unit

DECISIONS = ("faster", "slower", "no_gain", "inconclusive")


@dataclass(frozen=True)
class Rule:
    """A stopping rule; `look_every` units between looks (the turns of one pair, or 1)."""

    alpha: float
    min_effect: float
    min_units: int
    max_units: int
    look_every: int = 1
    unit: Unit = "pairs"


FAST = Rule(0.05, 0.05, 4, 24)
TURNS = Rule(0.05, 0.05, 8, 96, 8, "turns")  # batch 1: about 8 turns a pair
SLOW = Rule(0.025, 0.05, 4, 10)
COLD = Rule(0.05, 0.05, 6, 8)


def draw_units(noise: Noise, effect: float, runs: int, units: int, seed: int) -> Array:
    """Log-ratios, one row a run: two blocks of noise a unit, which side had which by a coin."""
    rng = np.random.default_rng(seed)
    blocks = noise(rng, runs, 2 * units)
    coin = rng.integers(0, 2, (runs, units)) * 2 - 1
    return effect + coin * (blocks[:, 0::2] - blocks[:, 1::2])


def log_e_path(units: Array, theta: float, sign: float, unit: Unit = "pairs") -> Array:
    """log E_n(theta) after each unit, as protos.stopping.log_e_value gives it for each prefix."""
    paths = []
    bets = TURN_BETS if unit == "turns" else BETS
    for share, slope in bets:
        z = sign * slope * (units - theta)
        # log(1 + c tanh z) = log((1 + c) + (1 - c) exp(-2z)) - log(1 + exp(-2z)), without overflow.
        rest = math.log1p(-share) - 2.0 * z if share < 1.0 else np.full_like(z, -math.inf)
        step = np.logaddexp(math.log1p(share), rest) - np.logaddexp(0.0, -2.0 * z)
        paths.append(np.cumsum(step, axis=1))
    top = np.maximum.reduce(paths)
    return np.asarray(top + np.log(sum(np.exp(path - top) for path in paths) / len(bets)))


@dataclass(frozen=True)
class Outcome:
    """What the rule said in each run (an index into DECISIONS) and after how many units."""

    said: NDArray[np.int64]
    units: NDArray[np.int64]

    def share(self, decision: str) -> float:
        return float(np.mean(self.said == DECISIONS.index(decision)))


def decide_all(units: Array, rule: Rule) -> Outcome:
    """protos.stopping.decide for every run, at every look until it decides."""
    runs, count = units.shape
    need = math.log(1.0 / rule.alpha)
    crossed: NDArray[np.bool_] = np.stack(
        [
            log_e_path(units, 0.0, 1.0, rule.unit) >= need,
            log_e_path(units, 0.0, -1.0, rule.unit) >= need,
            log_e_path(units, rule.min_effect, -1.0, rule.unit) >= need,
        ]
    )
    number = np.arange(1, count + 1)
    look = (number % rule.look_every == 0) & (number >= rule.min_units)
    look &= number <= rule.max_units
    crossed &= look[None, None, :]
    any_at: NDArray[np.bool_] = np.any(crossed, axis=0)
    decided = any_at.any(axis=1)
    at = np.where(decided, any_at.argmax(axis=1), min(count, rule.max_units) - 1)
    first = crossed[:, np.arange(runs), at].argmax(axis=0)  # the rule asks in this order
    return Outcome(np.where(decided, first, 3), at + 1)


def upper_bound(hits: int, runs: int, error: float = 0.05) -> float:
    """The one-sided Clopper-Pearson bound of a share: larger ones would rarely show so few hits."""
    if hits >= runs:
        return 1.0
    low, high = hits / runs, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _at_most(hits, runs, middle) > error else (low, middle)
    return high


def _at_most(hits: int, runs: int, share: float) -> float:
    logs = [
        math.lgamma(runs + 1)
        - math.lgamma(k + 1)
        - math.lgamma(runs - k + 1)
        + k * math.log(share)
        + (runs - k) * math.log1p(-share)
        for k in range(hits + 1)
        if share > 0.0
    ]
    return sum(math.exp(value) for value in logs) if logs else 1.0


@dataclass(frozen=True)
class ErrorRate:
    """Shares of runs of one noise, each with its 95 % upper bound; `nominal` is alpha."""

    noise: str
    runs: int
    nominal: float
    faster: float
    faster_at_most: float
    slower: float
    slower_at_most: float
    no_gain: float
    no_gain_at_most: float
    covered: float


def error_rate(name: str, rule: Rule, runs: int, seed: int) -> ErrorRate:
    """False words of the rule: `faster` and `slower` for no effect, `no_gain` for the least gain.

    `covered`: runs whose interval, at the stop, holds the true effect (at least 1 - 2 alpha).
    """
    null = draw_units(NOISES[name], 0.0, runs, rule.max_units, seed)
    least = draw_units(NOISES[name], rule.min_effect, runs, rule.max_units, seed + 1)
    on_null, on_least = decide_all(null, rule), decide_all(least, rule)
    hits = [round(on_null.share(word) * runs) for word in ("faster", "slower")]
    hits.append(round(on_least.share("no_gain") * runs))
    shares = [hit / runs for hit in hits]
    bounds = [upper_bound(hit, runs) for hit in hits]
    return ErrorRate(
        noise=name,
        runs=runs,
        nominal=rule.alpha,
        faster=shares[0],
        faster_at_most=bounds[0],
        slower=shares[1],
        slower_at_most=bounds[1],
        no_gain=shares[2],
        no_gain_at_most=bounds[2],
        covered=_covered(least, rule.min_effect, rule, on_least),
    )


def _covered(units: Array, theta: float, rule: Rule, outcome: Outcome) -> float:
    rows, at = np.arange(len(units)), outcome.units - 1
    need = math.log(1.0 / rule.alpha)
    inside = log_e_path(units, theta, 1.0, rule.unit)[rows, at] < need
    inside &= log_e_path(units, theta, -1.0, rule.unit)[rows, at] < need
    return float(np.mean(inside))


@dataclass(frozen=True)
class Kind:
    """What is counted: its standard deviation (log-ratio), seconds of both its sides, and the least
    number of them before a decision."""

    unit: Unit
    noise_sd: float
    unit_s: float
    least: int


PAIRS_OF_60_MS = Kind("pairs", 0.05, 0.06, 4)
TURNS_OF_15_MS = Kind("turns", 0.05, 0.015, 8)
TURNS_ON_A_BUSY_MACHINE = Kind("turns", 0.15, 0.015, 8)
KINDS = (PAIRS_OF_60_MS, TURNS_OF_15_MS, TURNS_ON_A_BUSY_MACHINE)


@dataclass(frozen=True)
class Power:
    """How soon a true gain is seen: engine-seconds of both sides, for a noise of one unit."""

    gain: float
    unit: Unit
    noise_sd: float
    unit_s: float
    seen_10s: float
    p50_s: float | None
    p90_s: float | None


def power(gain: float, kind: Kind, runs: int, seed: int, alpha: float) -> Power:
    """The rule has no last unit here but that of 60 engine-seconds."""
    unit, noise_sd, unit_s = kind.unit, kind.noise_sd, kind.unit_s
    rng = np.random.default_rng(seed)
    count = max(8, math.ceil(60.0 / unit_s))
    units = math.log1p(gain) + rng.normal(0.0, noise_sd, (runs, count))
    won = log_e_path(units, 0.0, 1.0, unit) >= math.log(1.0 / alpha)
    won[:, : kind.least - 1] = False
    seen = won.any(axis=1)
    took_s = np.where(seen, (won.argmax(axis=1) + 1) * unit_s, math.inf)
    p50, p90 = (float(value) for value in np.quantile(took_s, (0.5, 0.9), method="higher"))
    return Power(
        gain,
        unit,
        noise_sd,
        unit_s,
        float(np.mean(took_s <= 10.0)),
        p50 if math.isfinite(p50) else None,
        p90 if math.isfinite(p90) else None,
    )


@dataclass(frozen=True)
class Curse:
    """What is printed against what is true, in log-ratios, over many campaigns.

    `chosen`: the winner's own fast and slow estimates less its true effect, on average;
    `printed`: the same of the closing measurement on fresh seeds; `covered`: its intervals.
    """

    campaigns: int
    candidates: int
    chosen: float
    printed: float
    printed_error: float
    covered: float


def winners_curse(campaigns: int, candidates: int, seed: int) -> Curse:
    """Campaigns of small true effects: the best-looking is measured again, as the closing trial."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(0.0, 0.01, (campaigns, candidates))
    looked = effects + rng.normal(0.0, 0.02, (campaigns, candidates))
    rows, best = np.arange(campaigns), looked.argmax(axis=1)
    true = effects[rows, best]
    starts = true[:, None] + draw_units(heavy_light, 0.0, campaigns, 8, seed + 1)
    printed = np.median(starts, axis=1)
    error = printed - true
    need = math.log(2.0 / 0.05)  # alpha of the campaign, shared by both sides
    centred = starts - true[:, None]
    inside = (log_e_path(centred, 0.0, 1.0)[:, -1] < need) & (
        log_e_path(centred, 0.0, -1.0)[:, -1] < need
    )
    return Curse(
        campaigns,
        candidates,
        float(np.mean(looked[rows, best] - true)),
        float(np.mean(error)),
        float(np.std(error) / math.sqrt(campaigns)),
        float(np.mean(inside)),
    )


@dataclass(frozen=True)
class Promotions:
    """False promotions of candidates that change nothing, through all three tiers.

    `bound` is the product of the tiers' alphas: each tier draws fresh coins, so that whatever came
    before it errs with at most its alpha. `per_campaign` is the bound for `candidates` of them.
    """

    runs: int
    won_fast: float
    won_slow: float
    promoted: int
    bound: float
    candidates: int
    per_campaign: float


def false_promotions(noise: str, runs: int, seed: int, candidates: int = 300) -> Promotions:
    """The three tiers' real rules on candidates without effect."""
    alive = np.ones(runs, dtype=bool)
    shares = []
    for tier, rule in enumerate((FAST, SLOW, COLD)):
        units = draw_units(NOISES[noise], 0.0, runs, rule.max_units, seed + 10 * tier)
        alive &= decide_all(units, rule).said == 0
        shares.append(float(np.mean(alive)))
    bound = FAST.alpha * SLOW.alpha * COLD.alpha
    return Promotions(
        runs, shares[0], shares[1], int(alive.sum()), bound, candidates, bound * candidates
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.error_rates")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rule = Rule(options.alpha, FAST.min_effect, FAST.min_units, FAST.max_units)
    rates = [error_rate(name, rule, options.runs, options.seed) for name in NOISES]
    turns = [error_rate(name, TURNS, options.runs, options.seed) for name in NOISES]
    powers = [
        power(gain, kind, 2_000, options.seed, options.alpha)
        for kind in KINDS
        for gain in (0.02, 0.05, 0.20)
    ]
    curse = winners_curse(options.runs, 20, options.seed)
    promotions = [false_promotions(name, options.runs, options.seed) for name in NOISES]
    named = [*(("pairs", rate) for rate in rates), *(("turns", rate) for rate in turns)]
    for unit, rate in named:
        print(
            f"{unit} {rate.noise:<15} "
            f"faster {rate.faster:.4f} (at most {rate.faster_at_most:.4f})  "
            f"slower {rate.slower:.4f} ({rate.slower_at_most:.4f})  "
            f"no_gain {rate.no_gain:.4f} ({rate.no_gain_at_most:.4f})  nominal {rate.nominal}  "
            f"intervals hold {rate.covered:.4f}"
        )
    for one in powers:
        p50, p90 = ("over 60" if v is None else f"{v:.2f}" for v in (one.p50_s, one.p90_s))
        print(
            f"a gain of {one.gain:.0%} in {one.unit} of {one.unit_s * 1000:.0f} ms with noise "
            f"{one.noise_sd:.0%}: half are seen in {p50} s, nine of ten in {p90} s, "
            f"{one.seen_10s:.1%} within 10 engine-seconds"
        )
    print(
        f"winner's curse over {curse.campaigns} campaigns: the choosing data are off by "
        f"{curse.chosen:+.4f}, what is printed by {curse.printed:+.5f} "
        f"(standard error {curse.printed_error:.5f}); its intervals hold {curse.covered:.4f}"
    )
    for known, one_noise in zip(promotions, NOISES, strict=True):
        print(
            f"{one_noise:<15} {known.runs} candidates without effect: {known.promoted} promoted; "
            f"bound {known.bound:.2e} each, {known.per_campaign:.4f} for {known.candidates}"
        )
    print(
        json.dumps(
            {
                "error_rates": [asdict(rate) for rate in rates],
                "error_rates_turns": [asdict(rate) for rate in turns],
                "power": [asdict(one) for one in powers],
                "winners_curse": asdict(curse),
                "false_promotions": {
                    name: asdict(known) for name, known in zip(NOISES, promotions, strict=True)
                },
            }
        )
    )


if __name__ == "__main__":
    main()
