"""Exact bounds on a share that was counted. Pure."""

from __future__ import annotations

import math


def binomial_upper(seen: int, count: int, alpha: float) -> float:
    """The largest share under which at most `seen` of `count` isn't rarer than `alpha`.

    Clopper and Pearson's one-sided bound (1934), by bisection.
    """
    if not 0 <= seen <= count or count == 0:
        raise ValueError(f"{seen} of {count} is no share")
    if seen == count:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if _at_most(seen, count, middle) > alpha:
            low = middle
        else:
            high = middle
    return high


def _at_most(seen: int, count: int, share: float) -> float:
    return sum(
        math.comb(count, k) * share**k * (1.0 - share) ** (count - k) for k in range(seen + 1)
    )
