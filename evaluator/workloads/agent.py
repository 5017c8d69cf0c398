"""`agent`: one long shared prefix, then a fan-out of branches that each go on for some turns."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from evaluator.workloads.base import (
    Content,
    arrivals_s,
    draw,
    first_side,
    read_params,
    request,
    rng_of,
    turn_order,
)
from protos.trial import PairScript, Request

DEFAULTS = {
    "fast_prefix": 32.0,
    "slow_prefix": 96.0,
    "fast_branches": 3.0,
    "slow_branches": 4.0,
    "slow_turns": 2.0,
    "fast_step_max": 12.0,
    "slow_step_max": 40.0,
    "fast_output_max": 5.0,
    "slow_output_max": 20.0,
    "slow_rate_per_s": 5.0,
}


@dataclass(frozen=True)
class _Shape:
    prefix: int
    branches: int
    turns: int
    step_max: float
    output_max: float


class Agent:
    """The shared prefix runs untimed first; a branch's later turn repeats its earlier one."""

    def __init__(self, content: Content, params: Mapping[str, float], max_context: int) -> None:
        self._content = content
        self._params = read_params("agent", DEFAULTS, params)
        self._max_context = max_context

    def fast(self, seed: str, pair: int) -> PairScript:
        return self._pair(rng_of(seed, "fast", pair), self._shape("fast", 0, 1), None)

    def slow(self, seed: str, pair: int) -> PairScript:
        rng = rng_of(seed, "slow", pair)
        shape = self._shape("slow", rng.randint(0, 2), round(self._params["slow_turns"]))
        return self._pair(rng, shape, self._params["slow_rate_per_s"])

    def report(self) -> dict[str, float]:
        return {}

    def _shape(self, tier: str, extra: int, turns: int) -> _Shape:
        get = self._params
        return _Shape(
            prefix=round(get[f"{tier}_prefix"]),
            branches=round(get[f"{tier}_branches"]) + extra,
            turns=turns,
            step_max=get[f"{tier}_step_max"],
            output_max=get[f"{tier}_output_max"],
        )

    def _pair(self, rng: random.Random, shape: _Shape, rate_per_s: float | None) -> PairScript:
        first = first_side(rng)
        prefix = self._content.opening + self._content.prose(rng, shape.prefix)
        count = shape.branches * shape.turns
        times = [0.0] * count if rate_per_s is None else arrivals_s(rng, count, rate_per_s)
        histories = [prefix] * shape.branches
        timed: list[Request] = []
        for number, at_s in enumerate(times):
            branch = number % shape.branches  # turn by turn, each branch once a turn
            step = draw(rng, shape.step_max / 2, shape.step_max)
            histories[branch] += self._content.prose(rng, step)
            outputs = draw(rng, shape.output_max / 2, shape.output_max)
            prompt = histories[branch]
            timed.append(request(number, prompt, outputs, self._max_context, at_s))
        warm_up = (request(100, prefix, 1, self._max_context),)
        return PairScript(first, tuple(timed), warm_up=warm_up, turns=turn_order(rng))
