"""How well the fast tier predicts the slow one, and what follows for who gets a slow trial. Pure.

Rank correlation, regret and missed winners come from candidates that both tiers measured: winners
of the fast tier, and those drawn for a slow trial whatever the fast one said (audits). Only audits
can show a missed winner, so their number stands beside it.
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from protos.trial import Verdict

# A slow trial takes some five fast ones' time, and a release is worth many of both: it is spared
# only where fewer than one in ten would win it.
WORTH_TRYING = 0.1
CORRECT = ("faster", "slower", "no_gain", "inconclusive")


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b of n pairs with a bootstrap interval; None where it isn't defined."""

    tau: float | None
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True)
class Seen:
    """One candidate in both tiers: log-ratios to its base, the fast word, whether slow was won."""

    candidate: str
    fast: float
    slow: float
    fast_word: str
    won: bool


@dataclass(frozen=True)
class TierAgreement:
    """What a campaign shows. `both` candidates were measured by both tiers, `audited` of them
    though the fast tier had refused them; `missed` of those won. `passed` had won the fast tier,
    `confirmed` of those won the slow one too. `regret`: how much slower (log-ratio, slow tier) the
    fast tier's favourite is than the best of them. `least_gain`: the fast gain (log-ratio) under
    which a candidate gets no slow trial any more.
    """

    both: int
    tau: float | None
    tau_low: float | None
    tau_high: float | None
    passed: int
    confirmed: int
    audited: int
    missed: tuple[str, ...]
    regret: float | None
    least_gain: float


def tier_agreement(seen: Sequence[Seen], min_effect: float) -> TierAgreement:
    """All of it for the candidates of one campaign; the same ones give the same figures."""
    found = agreement([one.fast for one in seen], [one.slow for one in seen], rounds=200)
    passed = [one for one in seen if one.fast_word == "faster"]
    audited = [one for one in seen if one.fast_word != "faster"]
    return TierAgreement(
        both=len(seen),
        tau=found.tau,
        tau_low=found.low,
        tau_high=found.high,
        passed=len(passed),
        confirmed=sum(one.won for one in passed),
        audited=len(audited),
        missed=tuple(one.candidate for one in audited if one.won),
        regret=regret(seen),
        least_gain=least_gain(((one.fast, one.won) for one in passed), min_effect),
    )


def seen_of(verdicts: Iterable[Verdict], min_effect: float) -> list[Seen]:
    """Candidates with a correct, measured verdict of both tiers, in order of their slow one.

    `won` is the slow tier's own test: faster, and by `min_effect` at least.
    """
    fast: dict[str, Verdict] = {}
    slow: dict[str, Verdict] = {}
    for verdict in verdicts:
        measured = verdict.interval is not None and verdict.word in CORRECT
        if verdict.candidate is not None and measured and verdict.tier in ("fast", "slow"):
            (fast if verdict.tier == "fast" else slow)[verdict.candidate] = verdict
    found = []
    for candidate, late in slow.items():
        early = fast.get(candidate)
        if early is None or early.interval is None or late.interval is None:
            continue
        gain = math.log(late.interval.estimate)
        won = late.word == "faster" and gain >= min_effect
        found.append(Seen(candidate, math.log(early.interval.estimate), gain, early.word, won))
    return found


def least_gain(passed: Iterable[tuple[float, bool]], min_effect: float) -> float:
    """The fast gain (log-ratio) from which on a fast winner gets a slow trial: 0 to `min_effect`.

    `passed`: the fast gain of each fast winner that had its slow trial, and whether it won that.
    The largest cut under which a candidate wins with a chance of less than WORTH_TRYING (Laplace's
    rule of succession: with no winner among them it takes 9); 0 while nothing shows that.
    """
    ordered = sorted(passed)
    least, won = 0.0, 0
    for below, (gain, winner) in enumerate(ordered, 1):
        won += winner
        following = ordered[below][0] if below < len(ordered) else min_effect
        cut = min(following, min_effect)
        if gain < cut and (won + 1) / (below + 2) < WORTH_TRYING:
            least = max(least, cut)
    return least


def regret(seen: Sequence[Seen]) -> float | None:
    """The best slow gain less that of the fast tier's favourite; None with fewer than two."""
    if len(seen) < 2:
        return None
    favourite = max(seen, key=lambda one: one.fast)
    return max(one.slow for one in seen) - favourite.slow


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
