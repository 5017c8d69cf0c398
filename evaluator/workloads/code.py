"""`code`: completion in source files: long prompts, short outputs. Prefill decides."""

import random
from collections.abc import Mapping

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
from protos.trial import PairScript

DEFAULTS = {
    "fast_requests": 1.0,
    "slow_requests": 3.0,
    "fast_prompt_min": 64.0,
    "fast_prompt_max": 128.0,
    "slow_prompt_min": 128.0,
    "slow_prompt_max": 384.0,
    "fast_output_max": 4.0,
    "slow_output_max": 24.0,
    "slow_rate_per_s": 2.0,
}


class Code:
    """Prompts are slices of real source code; nothing is shared between requests."""

    def __init__(self, content: Content, params: Mapping[str, float], max_context: int) -> None:
        self._content = content
        self._params = read_params("code", DEFAULTS, params)
        self._max_context = max_context

    def fast(self, seed: str, pair: int) -> PairScript:
        rng = rng_of(seed, "fast", pair)
        return self._pair(rng, "fast", [0.0] * round(self._params["fast_requests"]))

    def slow(self, seed: str, pair: int) -> PairScript:
        rng = rng_of(seed, "slow", pair)
        count = round(self._params["slow_requests"]) + rng.randint(0, 1)
        return self._pair(rng, "slow", arrivals_s(rng, count, self._params["slow_rate_per_s"]))

    def report(self) -> dict[str, float]:
        return {}

    def _pair(self, rng: random.Random, tier: str, times: list[float]) -> PairScript:
        params, first, timed = self._params, first_side(rng), []
        for number, at_s in enumerate(times):
            count = draw(rng, params[f"{tier}_prompt_min"], params[f"{tier}_prompt_max"])
            prompt = self._content.opening + self._content.code(rng, count)
            outputs = draw(rng, params[f"{tier}_output_max"] / 2, params[f"{tier}_output_max"])
            timed.append(request(number, prompt, outputs, self._max_context, at_s))
        return PairScript(first, tuple(timed), turns=turn_order(rng))
