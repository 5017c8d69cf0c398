"""Serving metrics of one timed block, by the names of `protos.target.METRICS`.

They live in the contract because the engine host stops by them and the evaluator re-derives them.
Names and definitions are those of vLLM's and AIPerf's serving benchmarks. Pure, stdlib only.
Failures count against: a block with a failed request has no metrics, only failures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from protos.target import METRICS
from protos.trial import BlockSample, Request, RequestSample, Unit

NS_PER_S = 1e9
NS_PER_MS = 1e6


def failures(block: BlockSample, requests: Sequence[Request]) -> list[str]:
    """One line for every request that failed, is missing, or has too few tokens."""
    samples = {sample.id: sample for sample in block.requests}
    lines = []
    for request in requests:
        line = _failure(samples.get(request.id), request)
        if line is not None:
            lines.append(f"request {request.id}: {line}")
    return lines


def _failure(sample: RequestSample | None, request: Request) -> str | None:
    if sample is None:
        return "was never answered"
    if sample.error is not None:
        return sample.error
    if sample.finish is None:
        return "was never finished"
    if len(sample.tokens) != request.max_tokens:
        return f"has {len(sample.tokens)} of {request.max_tokens} tokens"
    if len(sample.token_ns) != len(sample.tokens):
        return "has tokens without a time"
    return None


def metric_value(name: str, block: BlockSample) -> float | None:
    """The value of one metric over a block's requests, in the metric's unit.

    None where the block has none: a TPOT of one-token outputs, and anything once a request failed.
    Raises ValueError for an unknown name.
    """
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}: use one of {', '.join(METRICS)}")
    samples = block.requests
    if not samples or block.wall_ns <= 0 or not all(_complete(sample) for sample in samples):
        return None
    if name == "output_tok_s":
        return sum(len(sample.tokens) for sample in samples) / (block.wall_ns / NS_PER_S)
    if name == "requests_s":
        return len(samples) / (block.wall_ns / NS_PER_S)
    kind, _, quantile = name.partition("_ms_p")
    values = [value for sample in samples for value in _LATENCIES[kind](sample)]
    return percentile(values, float(quantile)) if values else None


def _complete(sample: RequestSample) -> bool:
    ended = sample.error is None and sample.finish is not None
    return ended and bool(sample.tokens) and len(sample.tokens) == len(sample.token_ns)


def log_ratio(name: str, a: float, b: float) -> float:
    """The log-ratio of side B to side A of a metric, positive when B is better."""
    ratio = math.log(b / a)
    return ratio if METRICS[name] == "max" else -ratio


def pair_ratio(name: str, a: BlockSample, b: BlockSample) -> float | None:
    """The log-ratio of one pair, positive when B is better; None where a side has no value."""
    value_a, value_b = metric_value(name, a), metric_value(name, b)
    if not value_a or not value_b:
        return None
    return log_ratio(name, value_a, value_b)


def pair_units(name: str, a: BlockSample, b: BlockSample, unit: Unit) -> list[float] | None:
    """What one pair gives the stopping rule: its log-ratio, or that of each turn of both sides.

    A turn in which a side put out nothing gives none. None where the pair has no value.
    Raises ValueError for turns of a metric that isn't a rate of output tokens.
    """
    whole = pair_ratio(name, a, b)
    if whole is None or unit == "pairs":
        return None if whole is None else [whole]
    if name != "output_tok_s":
        raise ValueError(f"{name} can't be told from one turn: count pairs")
    turns = zip(a.turn_tokens, a.turn_ns, b.turn_tokens, b.turn_ns, strict=False)
    found = [
        log_ratio(name, count_a / ns_a, count_b / ns_b)
        for count_a, ns_a, count_b, ns_b in turns
        if count_a and count_b
    ]
    return found or None


def percentile(values: Sequence[float], quantile: float) -> float:
    """Linear interpolation between order statistics (numpy's default). Raises on no values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    at = (len(ordered) - 1) * quantile / 100.0
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _ttft_ms(sample: RequestSample) -> list[float]:
    return [(sample.token_ns[0] - sample.sent_ns) / NS_PER_MS]


def _e2e_ms(sample: RequestSample) -> list[float]:
    return [(sample.token_ns[-1] - sample.sent_ns) / NS_PER_MS]


def _tpot_ms(sample: RequestSample) -> list[float]:
    after_first = len(sample.tokens) - 1
    if after_first < 1:
        return []
    return [(sample.token_ns[-1] - sample.token_ns[0]) / NS_PER_MS / after_first]


def _itl_ms(sample: RequestSample) -> list[float]:
    pairs = zip(sample.token_ns, sample.token_ns[1:], strict=False)
    return [(later - earlier) / NS_PER_MS for earlier, later in pairs]


_LATENCIES = {"ttft": _ttft_ms, "e2e": _e2e_ms, "tpot": _tpot_ms, "itl": _itl_ms}
