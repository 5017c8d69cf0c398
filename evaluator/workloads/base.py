"""What every workload shares: its protocol, its parameters and its draws. Pure."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from protos.trial import PairScript, Request

Tier = Literal["fast", "slow", "cold"]
Tokens = tuple[int, ...]
TURNS = 64  # coins of a pair; a longer pair begins again at the first


class WorkloadError(ValueError):
    """A workload can't be made as asked; one line says what to do."""


class Content(Protocol):
    """Where the tokens of prompts come from."""

    def prose(self, rng: random.Random, count: int) -> Tokens:
        """`count` tokens of fresh natural text."""
        ...

    def code(self, rng: random.Random, count: int) -> Tokens:
        """`count` tokens of fresh source code."""
        ...

    @property
    def opening(self) -> Tokens:
        """What the tokenizer puts before every text (often nothing)."""
        ...


class Generator(Protocol):
    """One workload: a fresh pair for each number, the same again for the same seed and number."""

    def fast(self, seed: str, pair: int) -> PairScript:
        """A closed-loop burst of tens of milliseconds: everything is sent at once."""
        ...

    def slow(self, seed: str, pair: int) -> PairScript:
        """An episode of traffic: open loop, other lengths and batch sizes than `fast` has."""
        ...

    def report(self) -> dict[str, float]:
        """What a reader must know of how it was made (a trace's scale, for instance)."""
        ...


def rng_of(seed: str, tier: str, pair: int) -> random.Random:
    """The one source of randomness of a pair."""
    return random.Random(hashlib.sha256(f"{seed}|{tier}|{pair}".encode()).digest())


def read_params(
    name: str, defaults: Mapping[str, float], given: Mapping[str, float]
) -> dict[str, float]:
    """The workload's parameters: its defaults with the given values over them.

    Raises WorkloadError on an unknown name or a value that isn't above 0.
    """
    for key, value in given.items():
        if key not in defaults:
            known = ", ".join(sorted(defaults))
            raise WorkloadError(f"workload {name} has no parameter {key!r}: use one of {known}")
        if value <= 0:
            raise WorkloadError(f"{key} of workload {name} must be more than 0, not {value}")
    return {**defaults, **given}


def draw(rng: random.Random, low: float, high: float) -> int:
    """A whole number from low to high, both included; at least 1."""
    floor = max(1, round(low))
    return rng.randint(floor, max(floor, round(high)))


def first_side(rng: random.Random) -> Literal["A", "B"]:
    """Which side of the pair runs first: a fair coin, on which the statistics rest."""
    return "A" if rng.random() < 0.5 else "B"


def turn_order(rng: random.Random) -> str:
    """Who goes first each time, should the pair be timed in turns: a fair coin for each."""
    return "".join(rng.choice("AB") for _ in range(TURNS))


def arrivals_s(rng: random.Random, count: int, rate_per_s: float) -> list[float]:
    """Sends of an open loop (Poisson arrivals), the first at 0, in seconds to the microsecond."""
    times, now = [], 0.0
    for _ in range(count):
        times.append(round(now, 6))
        now += rng.expovariate(rate_per_s)
    return times


def request(
    number: int, prompt: Sequence[int], max_tokens: int, max_context: int, at_s: float = 0.0
) -> Request:
    """A request that fits the model: output to a quarter of the context, the prompt's head cut."""
    outputs = max(1, min(max_tokens, max_context // 4))
    room = max(1, max_context - outputs)
    return Request(number, tuple(prompt[:room]), outputs, at_s)


def prefix_hit(pairs: Sequence[PairScript]) -> float:
    """Share of timed prompt tokens that begin an earlier prompt of their pair (warm-up included).

    An unlimited prefix cache could at best skip these; what a request gets back is not counted.
    """
    shared = total = 0
    for pair in pairs:
        seen = [item.prompt for item in pair.warm_up]
        for item in pair.requests:
            shared += max((_common(item.prompt, other) for other in seen), default=0)
            total += len(item.prompt)
            seen.append(item.prompt)
    return shared / total if total else 0.0


def _common(left: Tokens, right: Tokens) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count
