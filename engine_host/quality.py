"""Measures quality on the script's fixed set: what a side says of text, and what it serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

from engine_host.block import serve
from engine_host.errors import EngineLostError, TrialFailedError
from engine_host.grading import SCORE_LIMIT_S, read_score
from engine_host.trial_process import TrialProcess
from protos.trial import Quality, QualityItem, Request

_STARTS: WeakKeyDictionary[TrialProcess, tuple[tuple[QualityItem, ...], Quality]]
_STARTS = WeakKeyDictionary()
Columns = tuple[tuple[float, ...], tuple[float, ...]]  # gaps, log-probabilities


def measure(
    reference: TrialProcess,
    sides: Sequence[tuple[Literal["A", "B"], TrialProcess]],
    items: Sequence[QualityItem],
    limit_s: float,
    vocab: int,
) -> tuple[Quality, ...]:
    """Both sides and the float32 start on the set. Raises TrialFailedError, EngineLostError."""
    found = []
    for side, process in sides:
        try:
            found.append(_side(process, side, reference, items, limit_s, vocab))
        except TrialFailedError as error:
            if side == "A":
                raise EngineLostError(f"side A: {error.detail}") from error
            raise
    return (*found, _start(reference, items))


def _side(
    process: TrialProcess,
    side: Literal["A", "B"],
    reference: TrialProcess,
    items: Sequence[QualityItem],
    limit_s: float,
    vocab: int,
) -> Quality:
    texts = [item for item in items if item.kind == "text"]
    asked = [item for item in items if item.kind != "text"]
    process.thaw()
    try:
        scores = _score(process, [_pair(item.prompt, item.output) for item in texts], limit_s)
        outputs = _served(process, asked, limit_s, vocab)
    except EngineLostError as error:
        raise TrialFailedError("block", f"its scores can't be read: {error}") from error
    finally:
        process.freeze()
    pairs = [_pair(item.prompt, said) for item, said in zip(asked, outputs, strict=True)]
    gaps = tuple(gaps for gaps, _ in _of_reference(reference, pairs))
    return _quality(side, scores, outputs, gaps)


def _start(reference: TrialProcess, items: Sequence[QualityItem]) -> Quality:
    """The start's own side: the set and the reference stay the same, so it is asked once."""
    known = _STARTS.get(reference)
    if known is None or known[0] != tuple(items):
        known = tuple(items), _start_anew(reference, items)
        _STARTS[reference] = known
    return known[1]


def _start_anew(reference: TrialProcess, items: Sequence[QualityItem]) -> Quality:
    texts = [_pair(item.prompt, item.output) for item in items if item.kind == "text"]
    tasks = [_pair(item.prompt, item.output) for item in items if item.kind == "task"]
    scores = _of_reference(reference, [*texts, *tasks])
    gaps = tuple(gaps for gaps, _ in scores[len(texts) :])
    return _quality("R", scores[: len(texts)], (), gaps)


def _quality(
    side: Literal["A", "B", "R"],
    scores: Sequence[Columns],
    outputs: tuple[tuple[int, ...], ...],
    gaps: tuple[tuple[float, ...], ...],
) -> Quality:
    sums = [-sum(logprobs) for _, logprobs in scores]
    lengths = [len(logprobs) for _, logprobs in scores]
    means = tuple(total / length for total, length in zip(sums, lengths, strict=True))
    return Quality(side, sum(lengths), sum(sums), means, outputs, gaps)


def _served(
    process: TrialProcess, asked: Sequence[QualityItem], limit_s: float, vocab: int
) -> tuple[tuple[int, ...], ...]:
    requests = [
        Request(id=number, prompt=item.prompt, max_tokens=item.tokens)
        for number, item in enumerate(asked)
    ]
    if not requests:
        return ()
    found = {sample.id: sample for sample in serve(process, requests, limit_s).requests}
    for request in requests:
        sample = found.get(request.id)
        said = sample.tokens if sample is not None and sample.error is None else ()
        if len(said) != request.max_tokens or not all(0 <= token < vocab for token in said):
            why = sample.error if sample is not None and sample.error else "has other tokens"
            raise TrialFailedError("block", f"quality request {request.id} {why}")
    return tuple(found[request.id].tokens for request in requests)


def _of_reference(reference: TrialProcess, pairs: list[dict[str, Any]]) -> list[Columns]:
    reference.thaw()
    try:
        return _score(reference, pairs, SCORE_LIMIT_S)
    except TrialFailedError as error:
        raise EngineLostError(f"the reference can't score: {error.detail}") from error
    finally:
        reference.freeze()


def _score(process: TrialProcess, pairs: list[dict[str, Any]], limit_s: float) -> list[Columns]:
    if not pairs:
        return []
    scores = process.ask("score", "block", limit_s, sequences=pairs)
    if not isinstance(scores, list) or len(scores) != len(pairs):
        raise EngineLostError("the scores don't fit the sequences")
    return [read_score(score, pair["output"]) for score, pair in zip(scores, pairs, strict=True)]


def _pair(prompt: Sequence[int], output: Sequence[int]) -> dict[str, Any]:
    return {"prompt": tuple(prompt), "output": tuple(output)}
