"""`chat`: several people in conversations of mixed length that share one system prompt."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from evaluator.workloads.base import (
    Content,
    Tokens,
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
    "fast_users": 3.0,
    "slow_users": 5.0,
    "fast_system": 16.0,
    "slow_system": 48.0,
    "slow_rate_per_s": 4.0,
    "fast_message_max": 14.0,
    "slow_message_max": 56.0,
    "fast_output_max": 8.0,
    "slow_output_max": 28.0,
}


@dataclass(frozen=True)
class _Shape:
    users: int
    system: int
    message_max: float
    output_max: float
    rate_per_s: float | None  # None: closed loop, everything at once


class Chat:
    """Each user's earlier turns run untimed (a cache may keep them); the next turn is timed."""

    def __init__(self, content: Content, params: Mapping[str, float], max_context: int) -> None:
        self._content = content
        self._params = read_params("chat", DEFAULTS, params)
        self._max_context = max_context

    def fast(self, seed: str, pair: int) -> PairScript:
        return self._pair(rng_of(seed, "fast", pair), self._shape("fast", 0, None))

    def slow(self, seed: str, pair: int) -> PairScript:
        rng = rng_of(seed, "slow", pair)
        # A held-out batch size each time: the fast tier only ever shows one.
        shape = self._shape("slow", rng.randint(0, 2), self._params["slow_rate_per_s"])
        return self._pair(rng, shape)

    def report(self) -> dict[str, float]:
        return {}

    def _shape(self, tier: str, extra: int, rate_per_s: float | None) -> _Shape:
        get = self._params
        return _Shape(
            users=round(get[f"{tier}_users"]) + extra,
            system=round(get[f"{tier}_system"]),
            message_max=get[f"{tier}_message_max"],
            output_max=get[f"{tier}_output_max"],
            rate_per_s=rate_per_s,
        )

    def _pair(self, rng: random.Random, shape: _Shape) -> PairScript:
        first = first_side(rng)
        system = self._content.opening + self._content.prose(rng, shape.system)
        times = [0.0] * shape.users
        if shape.rate_per_s is not None:
            times = arrivals_s(rng, shape.users, shape.rate_per_s)
        before: list[Request] = []
        timed: list[Request] = []
        for user in range(shape.users):
            history = system
            for _ in range(rng.randint(0, 2)):
                history += self._message(rng, shape)
            if history != system:
                before.append(request(100 + user, history, 1, self._max_context))
            prompt = history + self._message(rng, shape)
            outputs = draw(rng, shape.output_max / 2, shape.output_max)
            timed.append(request(user, prompt, outputs, self._max_context, times[user]))
        return PairScript(first, tuple(timed), warm_up=tuple(before), turns=turn_order(rng))

    def _message(self, rng: random.Random, shape: _Shape) -> Tokens:
        return self._content.prose(rng, draw(rng, shape.message_max / 3, shape.message_max))
