"""Grading outputs after timing: the float32 start release scores what the engines said."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine_host.errors import EngineLostError, TrialFailedError
from engine_host.trial_process import TrialProcess
from protos.trial import BlockSample, Grade, Request, RequestSample, Script

SCORE_LIMIT_S = 60.0


@dataclass(frozen=True)
class Drawn:
    """One output of side B chosen for grading, with side A's of the same request."""

    pair: int
    request: Request
    a: RequestSample
    b: RequestSample

    @property
    def same(self) -> bool:
        return self.a.tokens == self.b.tokens


def draw(blocks: Sequence[BlockSample], script: Script, most: int) -> list[Drawn]:
    """Choose outputs to grade, untimed ones too: those that differ from side A's first.

    Of outputs that say the same as side A's one is enough: A's were graded before its promotion.
    """
    found: list[Drawn] = []
    sides = {(block.pair, block.side): block for block in blocks}
    for (pair, side), block in sides.items():
        other = sides.get((pair, "A"))
        if side == "A" or other is None:
            continue
        said_by_a = {sample.id: sample for sample in (*other.requests, *other.warm_up)}
        said_by_b = {sample.id: sample for sample in (*block.requests, *block.warm_up)}
        for request in (*script.pairs[pair].requests, *script.pairs[pair].warm_up):
            a, b = said_by_a.get(request.id), said_by_b.get(request.id)
            if a is not None and b is not None and a.tokens and b.tokens:
                found.append(Drawn(pair, request, a, b))
    random.Random(script.seed).shuffle(found)
    differ = [one for one in found if not one.same][:most]
    return differ if differ else [one for one in found if one.same][: min(1, most)]


def grade(
    reference: TrialProcess, drawn: Sequence[Drawn]
) -> tuple[tuple[Grade, ...], float | None]:
    """Grades of B's outputs, and the largest gap of A's own. Raises EngineLostError."""
    if not drawn:
        return (), None
    sequences = [{"prompt": one.request.prompt, "output": one.b.tokens} for one in drawn]
    differ = [one for one in drawn if not one.same]
    sequences += [{"prompt": one.request.prompt, "output": one.a.tokens} for one in differ]
    reference.thaw()
    try:
        scores = reference.ask("score", "block", SCORE_LIMIT_S, sequences=sequences)
    except TrialFailedError as error:
        raise EngineLostError(f"the reference can't score: {error.detail}") from error
    finally:
        reference.freeze()
    read = [read_score(score, seq["output"]) for score, seq in zip(scores, sequences, strict=True)]
    grades = tuple(
        Grade(one.pair, one.request.id, gaps, logprobs, one.same)
        for one, (gaps, logprobs) in zip(drawn, read, strict=False)
    )
    from_a = [gaps for one, (gaps, _) in zip(drawn, read, strict=False) if one.same]
    from_a += [gaps for gaps, _ in read[len(drawn) :]]
    return grades, max((max(gaps) for gaps in from_a if gaps), default=None)


def read_score(score: Any, output: Sequence[int]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Gaps and log-probabilities of one scored output. Raises EngineLostError if broken."""
    if not isinstance(score, dict):
        raise EngineLostError("a score is no object")
    columns = []
    for name in ("gaps", "logprobs"):
        values = score.get(name)
        if not isinstance(values, list) or len(values) != len(output):
            raise EngineLostError(f"{name} don't fit the {len(output)} tokens scored")
        if not all(isinstance(value, int | float) for value in values):
            raise EngineLostError(f"{name} are no numbers")
        columns.append(tuple(float(value) for value in values))
    return columns[0], columns[1]
