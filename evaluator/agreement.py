"""How well the fast tier predicts the slow one: rank agreement and missed winners. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from protos.trial import Verdict


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b of n pairs with a bootstrap interval; None where it isn't defined."""

    tau: float | None
    low: float | None
    high: float | None
    count: int


def kendall_tau_b(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Rank correlation, ties corrected (Kendall 1945). None when one side is all ties.

    Raises ValueError when the lengths differ.
    """
    if len(left) != len(right):
        raise ValueError(f"{len(left)} values against {len(right)}")
    agree = tied_left = tied_right = 0
    pairs = len(left) * (len(left) - 1) // 2
    for i in range(len(left)):
        for j in range(i):
            a = (left[i] > left[j]) - (left[i] < left[j])
            b = (right[i] > right[j]) - (right[i] < right[j])
            agree += a * b
            tied_left += a == 0
            tied_right += b == 0
    room = (pairs - tied_left) * (pairs - tied_right)
    return agree / float(room) ** 0.5 if room else None


def agreement(
    fast: Sequence[float], slow: Sequence[float], seed: int = 0, rounds: int = 1000
) -> Agreement:
    """Tau-b with its 95 % percentile bootstrap over candidates; the same seed, the same answer."""
    tau = kendall_tau_b(fast, slow)
    rng, count, taus = random.Random(seed), len(fast), []
    for _ in range(rounds if tau is not None else 0):
        picked = [rng.randrange(count) for _ in range(count)]
        found = kendall_tau_b([fast[i] for i in picked], [slow[i] for i in picked])
        if found is not None:
            taus.append(found)
    if not taus:
        return Agreement(tau, None, None, count)
    taus.sort()
    low, high = taus[int(0.025 * (len(taus) - 1))], taus[round(0.975 * (len(taus) - 1))]
    return Agreement(tau, low, high, count)


def missed_winners(fast: Sequence[Verdict], slow: Sequence[Verdict]) -> list[str]:
    """Candidates that the fast tier did not pass although the slow tier calls them faster."""
    refused = {
        item.candidate for item in fast if item.word in ("slower", "no_gain", "inconclusive")
    }
    passed = {item.candidate for item in fast if item.word == "faster"}
    won = [item.candidate for item in slow if item.word == "faster" and item.candidate]
    return sorted({name for name in won if name in refused and name not in passed})
