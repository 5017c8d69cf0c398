"""How often the judge was wrong about candidates whose verdict is known. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from protos.canary import KINDS, Kind, is_wrong
from services.bounds import binomial_upper

ALPHA = 0.05
TIERS = ("fast", "slow")  # a canary goes no further


class CanaryLine(msgspec.Struct, frozen=True):
    """Canaries of one kind in one tier: how many were judged and how many wrongly (a null or a
    cheat `faster`: falsely accepted; a gain not: falsely rejected). `at_most` is the share of wrong
    verdicts that so many judged ones don't rule out (Clopper and Pearson, one-sided, 95 %).
    """

    kind: Kind
    tier: str
    judged: int
    wrong: int
    at_most: float


def canary_lines(judged: Iterable[tuple[Kind, str, str]]) -> tuple[CanaryLine, ...]:
    """From each judged canary's kind, tier and verdict's word."""
    seen: Counter[tuple[Kind, str]] = Counter()
    wrong: Counter[tuple[Kind, str]] = Counter()
    for kind, tier, word in judged:
        seen[kind, tier] += 1
        wrong[kind, tier] += is_wrong(kind, word)
    return tuple(
        CanaryLine(kind, tier, count, bad := wrong[kind, tier], binomial_upper(bad, count, ALPHA))
        for kind in KINDS
        for tier in TIERS
        if (count := seen[kind, tier])
    )
