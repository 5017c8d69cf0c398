"""`single`: one request at a time, short prompt, decode. The latency of one person's answer."""

from collections.abc import Mapping

from evaluator.workloads.base import (
    Content,
    draw,
    first_side,
    read_params,
    request,
    rng_of,
    turn_order,
)
from protos.trial import PairScript, Request

DEFAULTS = {
    "fast_prompt_min": 4.0,
    "fast_prompt_max": 8.0,
    "fast_output_min": 4.0,
    "fast_output_max": 6.0,
    "slow_prompt_min": 32.0,
    "slow_prompt_max": 128.0,
    "slow_output_min": 32.0,
    "slow_output_max": 64.0,
}


class Single:
    """Batch 1. Slow episodes have longer prompts and outputs; before each, two requests of odd
    lengths run together untimed, so that an engine that can only do batch 1 fails there."""

    def __init__(self, content: Content, params: Mapping[str, float], max_context: int) -> None:
        self._content = content
        self._params = read_params("single", DEFAULTS, params)
        self._max_context = max_context

    def fast(self, seed: str, pair: int) -> PairScript:
        return self._pair(seed, pair, "fast", held_out=False)

    def slow(self, seed: str, pair: int) -> PairScript:
        return self._pair(seed, pair, "slow", held_out=True)

    def report(self) -> dict[str, float]:
        return {}

    def _pair(self, seed: str, pair: int, tier: str, held_out: bool) -> PairScript:
        rng, params = rng_of(seed, tier, pair), self._params
        first = first_side(rng)
        prompt = draw(rng, params[f"{tier}_prompt_min"], params[f"{tier}_prompt_max"])
        outputs = draw(rng, params[f"{tier}_output_min"], params[f"{tier}_output_max"])
        text = self._content.opening + self._content.prose(rng, prompt)
        timed = request(0, text, outputs, self._max_context)
        warm_up: tuple[Request, ...] = ()
        if held_out:
            others = [self._content.prose(rng, draw(rng, 17, 41)) for _ in range(2)]
            warm_up = tuple(
                request(100 + i, self._content.opening + other, 2 + i, self._max_context)
                for i, other in enumerate(others)
            )
        return PairScript(first, (timed,), warm_up=warm_up, turns=turn_order(rng))
