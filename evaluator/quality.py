"""The quality suite: no worse than the start in float32 by more than stated margins. Pure.

Every release is held against the same start on the same set, never against the release before it,
so that losses can't add up unseen: whatever came before, the whole of it must fit in one margin.
Each measure must pass (a patch beyond any one margin passes with a chance of ALPHA at most).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from protos.trial import Quality, QualityItem, QualityMeasure

ALPHA = 0.05
MARGIN_NATS = 0.02  # of held-out text, a token: 2 % of perplexity
# What was served, in the eyes of the float32 start: how far its tokens lie under the best one in
# log-probability, and how many of them are another token than the best. Two bfloat16 builds of one
# model differ by 0.002 and 4 % in this.
MARGIN_GAP = 0.03
MARGIN_DISAGREEMENT = 0.12
MARGIN_TASKS = 0.10  # of the tasks


@dataclass(frozen=True)
class Suite:
    """Every measure, and in one line what decided."""

    measures: tuple[QualityMeasure, ...]

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.measures)

    @property
    def reason(self) -> str:
        worst = [one for one in self.measures if not one.ok] or list(self.measures)
        word = "within" if self.ok else "beyond"
        figures = "; ".join(
            f"{one.name} {one.b:.4g} {one.unit} (the start has {one.start:.4g}), worse by at most "
            f"{one.upper:.4f}, allowed {one.margin:g}"
            for one in worst
        )
        return f"quality {word} its margins against the start: {figures}"


def suite(quality: Sequence[Quality], items: Sequence[QualityItem]) -> Suite:
    """Judge side B by the whole set. Raises ValueError where a side or an item is missing."""
    sides = {item.side: item for item in quality}
    if len(sides) != 3 or len(quality) != 3:
        raise ValueError("the quality suite needs exactly one result for each side and the start")
    a, b, start = sides["A"], sides["B"], sides["R"]
    _check(a, b, start, items)
    measures = [_perplexity(start, a, b)]
    if any(item.kind == "open" for item in items):
        measures += [_gap(a, b, items), _disagreement(a, b, items)]
    if any(item.kind == "task" for item in items):
        measures.append(_tasks(start, a, b, items))
    return Suite(tuple(measures))


def _check(a: Quality, b: Quality, start: Quality, items: Sequence[QualityItem]) -> None:
    texts = sum(item.kind == "text" for item in items)
    counts = [len(side.per_passage_nll) for side in (start, a, b)]
    if counts != [texts] * 3 or texts < 2:
        raise ValueError(f"{counts} passages don't pair: {texts} were asked for")
    asked = [item for item in items if item.kind != "text"]
    for side in (a, b):
        lengths = [len(output) for output in side.outputs]
        if lengths != [item.tokens for item in asked]:
            raise ValueError(f"side {side.side} has other outputs than the set asks for")
        if [len(gaps) for gaps in side.gaps] != lengths:
            raise ValueError(f"the gaps of side {side.side} don't fit its outputs")
    answers = [len(item.output) for item in items if item.kind == "task"]
    if [len(gaps) for gaps in start.gaps] != answers:
        raise ValueError("the start's answers don't fit the tasks")


def _perplexity(start: Quality, a: Quality, b: Quality) -> QualityMeasure:
    losses = _differences(b.per_passage_nll, start.per_passage_nll)
    values = [math.exp(_mean(side.per_passage_nll)) for side in (start, a, b)]
    return measure("perplexity of held-out text", "", values, losses, MARGIN_NATS)


def _gap(a: Quality, b: Quality, items: Sequence[QualityItem]) -> QualityMeasure:
    means = [[_mean(gaps) for gaps in _open_gaps(side, items)] for side in (a, b)]
    values = [0.0, _mean(means[0]), _mean(means[1])]
    return measure("log-probability lost a token", "nats", values, means[1], MARGIN_GAP)


def _disagreement(a: Quality, b: Quality, items: Sequence[QualityItem]) -> QualityMeasure:
    """The start's own greedy choice is the best token by definition: it disagrees with none."""
    shares = [
        [_mean([float(gap > 0) for gap in gaps]) for gaps in _open_gaps(side, items)]
        for side in (a, b)
    ]
    values = [0.0, _mean(shares[0]), _mean(shares[1])]
    return measure(
        "tokens other than the start's", "of all", values, shares[1], MARGIN_DISAGREEMENT
    )


def _tasks(start: Quality, a: Quality, b: Quality, items: Sequence[QualityItem]) -> QualityMeasure:
    """Right is what greedy decoding gives exactly; the start's answers are read off its gaps."""
    right = [[float(max(gaps) <= 0) for gaps in start.gaps]]
    right += [_right(side, items) for side in (a, b)]
    values = [_mean(answers) for answers in right]
    losses = _differences(right[0], right[2])
    return measure("tasks answered", "of all", values, losses, MARGIN_TASKS)


def _open_gaps(side: Quality, items: Sequence[QualityItem]) -> list[tuple[float, ...]]:
    asked = [item for item in items if item.kind != "text"]
    return [gaps for item, gaps in zip(asked, side.gaps, strict=True) if item.kind == "open"]


def _right(side: Quality, items: Sequence[QualityItem]) -> list[float]:
    asked = [item for item in items if item.kind != "text"]
    return [
        float(output == item.output)
        for item, output in zip(asked, side.outputs, strict=True)
        if item.kind == "task"
    ]


def measure(
    name: str, unit: str, values: Sequence[float], losses: Sequence[float], margin: float
) -> QualityMeasure:
    """`values` of start, A and B; `losses`: B's, item by item, against the start's."""
    mean, upper = _mean(losses), upper_of(losses)
    start, a, b = values
    return QualityMeasure(name, unit, start, a, b, mean, upper, margin, len(losses))


def upper_of(losses: Sequence[float]) -> float:
    """The one-sided 95 % upper bound of the mean, by Student's t. Raises ValueError under two."""
    if len(losses) < 2:
        raise ValueError(f"{len(losses)} items are too few to bound a loss")
    mean = _mean(losses)
    spread = math.sqrt(sum((x - mean) ** 2 for x in losses) / (len(losses) - 1))
    return mean + _quantile(len(losses)) * spread / math.sqrt(len(losses))


def _differences(worse: Sequence[float], better: Sequence[float]) -> list[float]:
    return [x - y for x, y in zip(worse, better, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _quantile(count: int) -> float:
    """Student's t at 1 - ALPHA for `count` values (Cornish-Fisher; within 2 % from 5 values on)."""
    z, freedom = NormalDist().inv_cdf(1 - ALPHA), count - 1
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
