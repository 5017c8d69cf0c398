"""The quality suite: perplexity no worse than side A's by more than a margin. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from protos.trial import Quality

MARGIN_NATS = 0.02  # a token: 2 % of perplexity
ALPHA = 0.05


@dataclass(frozen=True)
class NonInferiority:
    """`upper_nats` is the upper bound of the mean loss a token, B minus A, over passages."""

    ok: bool
    reason: str
    mean_nats: float
    upper_nats: float | None


def non_inferior(quality: Sequence[Quality], margin_nats: float = MARGIN_NATS) -> NonInferiority:
    """Compare both sides over the same passages (paired). Raises ValueError when they don't pair.

    `per_passage_nll` are mean negative log-likelihoods a token (nats) of the same passages.
    """
    sides = {item.side: item for item in quality}
    if len(sides) != 2 or len(quality) != 2:
        raise ValueError("the quality suite needs exactly one result for each side")
    a, b = sides["A"].per_passage_nll, sides["B"].per_passage_nll
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"{len(a)} and {len(b)} passages don't pair: two or more are needed")
    losses = [after - before for before, after in zip(a, b, strict=True)]
    mean = sum(losses) / len(losses)
    spread = math.sqrt(sum((x - mean) ** 2 for x in losses) / (len(losses) - 1))
    upper = mean + _quantile(len(losses)) * spread / math.sqrt(len(losses))
    word = "within" if upper <= margin_nats else "beyond"
    reason = (
        f"perplexity changed by a factor {math.exp(mean):.4f}, at most {math.exp(upper):.4f}: "
        f"{word} the margin {math.exp(margin_nats):.4f} over {len(losses)} passages"
    )
    return NonInferiority(upper <= margin_nats, reason, mean, upper)


def _quantile(count: int) -> float:
    """Student's t at 1 - ALPHA for `count` values (Cornish-Fisher; within 2 % from 5 values on)."""
    z, freedom = NormalDist().inv_cdf(1 - ALPHA), count - 1
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
