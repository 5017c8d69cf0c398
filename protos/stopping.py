"""The stopping rule, declared in a plan, applied by the engine host, re-derived by the evaluator.

It lives in the contract because both rooms must compute exactly the same thing. Pure, stdlib only.

The data are log-ratios d_i of units (pairs of blocks, turns, or engine starts), positive when B is
better. Which side runs first is drawn at random in each unit, so if B's true effect is a constant
theta, d_i - theta is symmetric about 0 given everything before and given its size, whatever the
drift, autocorrelation or tails of the machine's noise. As tanh is odd, 1 + c tanh(lambda x) with
0 < c <= 1 then has expectation 1, so

    E_n(theta) = mean over (c, lambda) of  prod_i (1 + c tanh(lambda (d_i - theta)))

is a non-negative martingale started at 1, and by Ville's inequality exceeds 1/alpha ever with
probability at most alpha. It falls in theta, so the set of theta it has not rejected is an interval
that is valid at any stopping time. (Self-normalised martingales: de la Pena 1999; e-processes:
Ramdas et al. 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from protos.trial import StopRule, Unit

# (c, lambda per unit of log-ratio): for gains of about 1 %, 4 % and 25 % in noise of a few per
# cent. With c = 1, six units that agree decide: pairs and starts are dear.
BETS = ((1.0, 8.0), (1.0, 30.0), (1.0, 120.0))
# Turns are many, and a shared machine disturbs some of them wildly. Less than 1 caps what one of
# those can cost: on recorded trials these took a third fewer turns than the bets above.
TURN_BETS = ((1.0, 12.0), (0.7, 30.0), (0.5, 120.0))
_BRACKET = 8.0  # log-ratios beyond e^8 are not told apart
Decision = Literal["faster", "slower", "no_gain", "continue", "inconclusive"]


def log_e_value(
    ratios: Sequence[float], theta: float, sign: float = 1.0, unit: Unit = "pairs"
) -> float:
    """log E_n(theta) of the bet that the effect is above (sign=1) or below (sign=-1) theta.

    ratios: log-ratios, one a unit, in time order. Returns 0.0 for no data.
    """
    bets = TURN_BETS if unit == "turns" else BETS
    logs = [_log_wealth(ratios, theta, share, sign * slope) for share, slope in bets]
    top = max(logs)
    return top + math.log(sum(math.exp(value - top) for value in logs) / len(bets))


def _log_wealth(ratios: Sequence[float], theta: float, share: float, slope: float) -> float:
    total = 0.0
    for ratio in ratios:
        # 1 + c tanh(-z/2) = (1 + c + (1 - c) exp(z)) / (1 + exp(z)); logarithms don't overflow.
        z = -2.0 * slope * (ratio - theta)
        total += _log_sum(math.log1p(share), z, 1.0 - share) - _softplus(z)
    return total


def _log_sum(first: float, z: float, factor: float) -> float:
    """log(exp(first) + factor exp(z))."""
    if factor <= 0.0:
        return first
    second = math.log(factor) + z
    top = max(first, second)
    return top + math.log(math.exp(first - top) + math.exp(second - top))


def _softplus(x: float) -> float:
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


def lower_bound(ratios: Sequence[float], alpha: float, unit: Unit = "pairs") -> float | None:
    """Largest theta rejected from below at level alpha, valid at any time; None: no bound yet."""
    return _bound(ratios, alpha, 1.0, unit)


def upper_bound(ratios: Sequence[float], alpha: float, unit: Unit = "pairs") -> float | None:
    """Smallest theta rejected from above at level alpha, valid at any time; None: no bound yet."""
    return _bound(ratios, alpha, -1.0, unit)


def _bound(ratios: Sequence[float], alpha: float, sign: float, unit: Unit) -> float | None:
    if not ratios:
        return None
    need = math.log(1.0 / alpha)
    # `inside` is rejected (far on the losing side), `outside` is not.
    rejected, kept = -_BRACKET * sign, _BRACKET * sign
    if log_e_value(ratios, rejected, sign, unit) < need:
        return None
    for _ in range(40):
        middle = 0.5 * (rejected + kept)
        if log_e_value(ratios, middle, sign, unit) >= need:
            rejected = middle
        else:
            kept = middle
    return rejected


def estimate(ratios: Sequence[float]) -> float:
    """The effect as printed beside the interval: the median log-ratio. Raises on no data."""
    if not ratios:
        raise ValueError("no units to estimate from")
    ordered = sorted(ratios)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def decide(ratios: Sequence[float], rule: StopRule) -> Decision:
    """What the rule says after these units. `continue` until min_units; never after max_units."""
    n = len(ratios)
    last = n >= rule.max_units
    if n < rule.min_units or (rule.mode == "fixed" and not last):
        return "inconclusive" if last else "continue"
    need = math.log(1.0 / rule.alpha)
    if log_e_value(ratios, 0.0, 1.0, rule.unit) >= need:
        return "faster"
    if log_e_value(ratios, 0.0, -1.0, rule.unit) >= need:
        return "slower"
    if log_e_value(ratios, rule.min_effect, -1.0, rule.unit) >= need:
        return "no_gain"
    return "inconclusive" if last else "continue"
