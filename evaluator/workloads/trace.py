"""`trace`: recorded traffic, scaled to the model. Mooncake JSONL and Azure CSV.

Mooncake (github.com/kvcache-ai/Mooncake): one JSON object a line with `timestamp` (ms),
`input_length`, `output_length` and `hash_ids`, one id for each block of 512 prompt tokens; equal
ids are equal content. Azure (AzurePublicDataset, LLM inference traces): `TIMESTAMP,ContextTokens,
GeneratedTokens`. Neither holds text: it is drawn fresh, the same for the same hash id.
"""

import csv
import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from evaluator.workloads.base import (
    Content,
    Tokens,
    WorkloadError,
    draw,
    first_side,
    read_params,
    request,
    rng_of,
    turn_order,
)
from protos.trial import PairScript, Request

MOONCAKE_BLOCK_TOKENS = 512
FORMATS = ("mooncake_jsonl", "azure_csv")
DEFAULTS = {
    "fast_requests": 2.0,
    "slow_requests": 5.0,
    "fast_context": 64.0,  # tokens of prompt and output that the 95th percentile row is scaled to
    "slow_context": 320.0,
    "fast_output_max": 8.0,
    "slow_output_max": 32.0,
    "slow_rate_per_s": 3.0,
}


@dataclass(frozen=True)
class Row:
    """One recorded request: seconds since the first, tokens in and out, shared blocks."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


class _Mooncake(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []


def parse_trace(data: bytes, trace_format: str | None) -> list[Row]:
    """The rows of a trace, in time order. Raises WorkloadError that names the bad line."""
    if trace_format not in FORMATS:
        raise WorkloadError(f"unknown trace format {trace_format!r}: use {' or '.join(FORMATS)}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise WorkloadError(f"trace line {line}: not UTF-8 text") from error
    rows = _mooncake(text) if trace_format == "mooncake_jsonl" else _azure(text)
    if not rows:
        raise WorkloadError("the trace holds no request: give a file with at least one row")
    rows.sort(key=lambda row: row.at_s)
    start_s = rows[0].at_s
    return [Row(r.at_s - start_s, r.prompt_tokens, r.output_tokens, r.blocks) for r in rows]


def _mooncake(text: str) -> list[Row]:
    decoder, rows = msgspec.json.Decoder(_Mooncake), []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = decoder.decode(line)
        except msgspec.DecodeError as error:
            raise WorkloadError(f"trace line {number}: {error}") from error
        at_s = found.timestamp / 1e3
        rows.append(
            _row(number, at_s, found.input_length, found.output_length, tuple(found.hash_ids))
        )
    return rows


def _azure(text: str) -> list[Row]:
    lines = csv.reader(text.splitlines())
    header = [name.strip() for name in next(lines, [])]
    wanted = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
    if not header:
        raise WorkloadError("the trace holds no request: give a file with at least one row")
    if header != wanted:
        raise WorkloadError(
            f"trace line 1: the header must be {','.join(wanted)} (or every line a JSON object)"
        )
    rows = []
    for number, fields in enumerate(lines, start=2):
        if not fields:
            continue
        if len(fields) != len(wanted):
            raise WorkloadError(f"trace line {number}: {len(fields)} fields instead of 3")
        try:
            at_s = _azure_time_s(fields[0])
            rows.append(_row(number, at_s, int(fields[1]), int(fields[2]), ()))
        except ValueError as error:
            if isinstance(error, WorkloadError):
                raise
            raise WorkloadError(f"trace line {number}: {error}") from error
    return rows


def _azure_time_s(field: str) -> float:
    """Seconds; the files give seven digits after the second, which Python reads to six."""
    whole, _, part = field.strip().partition(".")
    digits = part.rstrip("Z").partition("+")[0]
    fraction = float(f"0.{digits}") if digits else 0.0
    return datetime.fromisoformat(whole).timestamp() + fraction


def _row(number: int, at_s: float, prompt: int, output: int, blocks: tuple[int, ...]) -> Row:
    if not math.isfinite(at_s) or at_s < 0:
        raise WorkloadError(f"trace line {number}: the time {at_s} is no time")
    if prompt < 1 or output < 0:
        raise WorkloadError(
            f"trace line {number}: {prompt} tokens in and {output} out is no request"
        )
    return Row(at_s, prompt, output, blocks)


class Trace:
    """Rows in a row from a random place of the trace, lengths and times scaled to the model.

    The scale is chosen so that the 95th percentile of a row's tokens fits the tier's context
    (parameters, at most the model's own); rows above it are cut. Both are in `report`.
    """

    def __init__(
        self,
        content: Content,
        params: Mapping[str, float],
        max_context: int,
        rows: list[Row],
    ) -> None:
        self._content = content
        self._params = read_params("trace", DEFAULTS, params)
        self._max_context = max_context
        self._rows = rows
        sizes = sorted(row.prompt_tokens + row.output_tokens for row in rows)
        self._p95 = sizes[min(len(sizes) - 1, math.ceil(0.95 * len(sizes)) - 1)]
        self._span_s = rows[-1].at_s

    def fast(self, seed: str, pair: int) -> PairScript:
        return self._pair(seed, pair, "fast")

    def slow(self, seed: str, pair: int) -> PairScript:
        return self._pair(seed, pair, "slow")

    def report(self) -> dict[str, float]:
        rows, scale = self._rows, self._scale("slow")
        cut = sum(row.prompt_tokens + row.output_tokens > self._p95 for row in rows)
        return {
            "trace_rows": float(len(rows)),
            "trace_fast_scale": self._scale("fast"),
            "trace_slow_scale": scale,
            "trace_time_scale": self._time_scale(),
            "trace_cut_share": cut / len(rows),
        }

    def _scale(self, tier: str) -> float:
        return min(1.0, min(self._params[f"{tier}_context"], self._max_context) / self._p95)

    def _time_scale(self) -> float:
        """Factor on the recorded gaps, so that the mean rate is `slow_rate_per_s`."""
        if self._span_s <= 0 or len(self._rows) < 2:
            return 1.0
        recorded_per_s = (len(self._rows) - 1) / self._span_s
        return recorded_per_s / self._params["slow_rate_per_s"]

    def _pair(self, seed: str, pair: int, tier: str) -> PairScript:
        rng = rng_of(seed, tier, pair)
        first = first_side(rng)
        count = min(len(self._rows), round(self._params[f"{tier}_requests"]))
        begin = rng.randint(0, len(self._rows) - count)
        rows = self._rows[begin : begin + count]
        salt = f"{seed}|{tier}|{pair}"
        timed: list[Request] = []
        for number, row in enumerate(rows):
            gap_s = (row.at_s - rows[0].at_s) * self._time_scale()
            at_s = 0.0 if tier == "fast" else round(gap_s, 6)
            timed.append(self._request(rng, salt, number, row, tier, at_s))
        return PairScript(first, tuple(timed), turns=turn_order(rng))

    def _request(
        self, rng: random.Random, salt: str, number: int, row: Row, tier: str, at_s: float
    ) -> Request:
        scale = self._scale(tier)
        limit = round(min(self._params[f"{tier}_context"], self._max_context))
        most = self._params[f"{tier}_output_max"]
        outputs = round(min(max(2.0, row.output_tokens * scale), most))
        tokens = max(1, min(round(row.prompt_tokens * scale), limit - outputs))
        prompt = self._shared(salt, row, scale, tokens)
        prompt += self._content.prose(rng, max(draw(rng, 1, 4), tokens - len(prompt)))
        return request(number, self._content.opening + prompt, outputs, self._max_context, at_s)

    def _shared(self, salt: str, row: Row, scale: float, tokens: int) -> Tokens:
        """The blocks whose hash ids the trace names: same id, same content within a pair."""
        prompt: Tokens = ()
        size = max(1, round(MOONCAKE_BLOCK_TOKENS * scale))
        for block in row.blocks[:-1]:  # the last block is part filled, so its content is its own
            if len(prompt) + size > tokens:
                break
            key = hashlib.sha256(f"{salt}|{block}".encode()).digest()
            prompt += self._content.prose(random.Random(key), size)
        return prompt
