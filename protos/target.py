"""What is tuned and for what: target, workload, objective, budget. Sent inside `open_campaign`."""

from __future__ import annotations

import re

from protos.base import Value

METRICS: dict[str, str] = {
    # name -> direction. Names and definitions are those of vLLM's and AIPerf's serving benchmarks.
    "output_tok_s": "max",  # output tokens of finished requests / wall seconds of the block
    "requests_s": "max",  # finished requests / wall seconds
    "ttft_ms_p50": "min",  # first token - scheduled send
    "ttft_ms_p99": "min",
    "tpot_ms_p50": "min",  # (latency - TTFT) / (output tokens - 1); a 1-token output has none
    "tpot_ms_p99": "min",
    "itl_ms_p50": "min",  # gaps between successive tokens, pooled over requests
    "itl_ms_p99": "min",
    "e2e_ms_p50": "min",  # last token - scheduled send
    "e2e_ms_p99": "min",
}
ENGINES = ("slim", "fake", "vllm")
STRATEGIES = ("knobs", "playbook", "recombine", "random")  # the proposers that come along
WORKLOADS = ("single", "chat", "code", "agent", "trace")


class Target(Value, frozen=True, tag="target"):
    """Engine + model + precision + device class (+ price of a device-hour)."""

    engine: str
    model: str
    precision: str = "bfloat16"
    device_class: str = "cpu"
    device_hour_usd: float | None = None


class Workload(Value, frozen=True, tag="workload"):
    """Request shapes, arrivals and prefix sharing. `trace` is a blob digest, for `name="trace"`."""

    name: str
    trace: str | None = None
    trace_format: str | None = None  # "mooncake_jsonl" | "azure_csv"
    params: dict[str, float] = {}


class Limit(Value, frozen=True, tag="limit"):
    """A named bound that a winner must keep, e.g. `ttft_ms_p99 <= 300`."""

    metric: str
    at_most: float | None = None
    at_least: float | None = None


class Objective(Value, frozen=True, tag="objective"):
    """One metric to improve under named limits; `output_class` is the loosest class accepted."""

    metric: str
    limits: tuple[Limit, ...] = ()
    output_class: str = "equivalent"  # bitwise | equivalent | quality
    min_effect: float = 0.05  # smallest gain worth a promotion, as a log-ratio

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (self.metric, *(limit.metric for limit in self.limits)):
            if name not in METRICS:
                raise ValueError(f"unknown metric {name!r}: use one of {', '.join(METRICS)}")
        if self.output_class not in ("bitwise", "equivalent", "quality"):
            raise ValueError(f"unknown output class {self.output_class!r}")
        if not 0.0 < self.min_effect < 1.0:
            raise ValueError(f"min_effect must lie between 0 and 1, not {self.min_effect}")


class Budget(Value, frozen=True, tag="budget"):
    """What a campaign may spend; it stops when any of these is reached (fails closed)."""

    wall_s: float
    device_s: float | None = None
    llm_tokens: int | None = None
    llm_usd: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wall_s <= 0:
            raise ValueError("the budget must be more than 0 s: give for example 5m")


_LIMIT = re.compile(r"^\s*([a-z0-9_]+)\s*(<=|>=)\s*([0-9.]+)\s*$")


def parse_objective(text: str) -> Objective:
    """`output_tok_s subject to ttft_ms_p99 <= 300 and e2e_ms_p99 <= 2000` as an Objective.

    Raises ValueError with one line that says what is wrong.
    """
    metric, _, rest = text.partition(" subject to ")
    limits: list[Limit] = []
    for part in [p for p in rest.split(" and ") if p.strip()]:
        found = _LIMIT.match(part)
        if not found:
            raise ValueError(
                f"cannot read the limit {part.strip()!r}: write for example ttft_ms_p99 <= 300"
            )
        name, sign, bound = found.groups()
        value = float(bound)
        limits.append(Limit(name, at_most=value) if sign == "<=" else Limit(name, at_least=value))
    return Objective(metric=metric.strip(), limits=tuple(limits))


_DURATION = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(s|m|h)?\s*$")


def parse_duration_s(text: str) -> float:
    """`90`, `90s`, `5m`, `2h` in seconds. Raises ValueError for anything else and for 0."""
    found = _DURATION.match(text)
    if not found:
        raise ValueError(f"cannot read the duration {text!r}: write for example 90s, 5m or 2h")
    seconds = float(found.group(1)) * {"s": 1.0, "m": 60.0, "h": 3600.0}[found.group(2) or "s"]
    if seconds <= 0:
        raise ValueError("the budget must be more than 0 s: give for example 5m")
    return seconds
