"""Trials made up from a seed: a host that keeps to its plan, with a noise and a true effect."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from evaluator.blocks import Pair, log_ratio
from evaluator.seeds import commitment_of, seed_of
from evaluator.workloads.content import RandomContent
from evaluator.workloads.make import make_generator, make_script
from protos.stopping import decide
from protos.target import Objective, Target, Workload
from protos.trial import (
    BlockSample,
    Evidence,
    Grade,
    Lease,
    PairScript,
    Plan,
    RequestSample,
    Script,
    Side,
    StopRule,
)

MAX_CONTEXT = 2048
TOKEN_NS = 20e6
SIDE = Side(release="r0", files={}, knobs={}, libraries={})


def make_lease(**changes: Any) -> Lease:
    """A lease of a fast `single` trial of the fake engine, with some fields changed."""
    lease = Lease(
        trial="t1",
        campaign="k",
        host="h",
        attempt=1,
        tier="fast",
        side_a=SIDE,
        side_b=msgspec.structs.replace(SIDE, candidate="c1", changed=("fake/model.py:decode",)),
        target=Target("fake", "none"),
        workload=Workload("single"),
        objective=Objective("output_tok_s"),
        plan=Plan(tier="fast", rule=StopRule()),
        epoch=7,
    )
    return msgspec.structs.replace(lease, **changes)


def make_script_for(lease: Lease, secret: bytes = b"s") -> Script:
    generator = make_generator(lease.workload, RandomContent(), MAX_CONTEXT)
    seed = seed_of(secret, lease.trial, lease.epoch)
    return make_script(lease, seed, generator, None, MAX_CONTEXT)


@dataclass
class MadeHost:
    """`effect` is B's true gain as a log-ratio; `noise` gives one factor's log a block."""

    effect: float = 0.0
    noise: Callable[[random.Random], float] = lambda rng: rng.gauss(0.0, 0.02)
    seed: int = 0
    grades: tuple[Grade, ...] | None = None
    gap: float = 0.2  # largest gap of the one output of side B that differs from side A's
    differs: bool = True
    changes: dict[str, Any] = field(default_factory=dict)

    def run(self, lease: Lease, script: Script) -> Evidence:
        rng, blocks = random.Random(self.seed), []
        for number, pair in enumerate(script.pairs):
            blocks += self._pair(number, pair, lease, rng)
            if decide(self._units(lease, blocks), lease.plan.rule) != "continue":
                break
        evidence = Evidence(
            trial=lease.trial,
            epoch=lease.epoch,
            attempt=1,
            host="h",
            lease=lease,
            commitment=commitment_of(script.seed),
            script="5" * 64,
            rung="hot",
            blocks=tuple(blocks),
            engaged=True,
            grades=self._grades(blocks) if self.grades is None else self.grades,
            noise_gap=0.1,
        )
        return msgspec.structs.replace(evidence, **self.changes)

    def _pair(
        self, number: int, pair: PairScript, lease: Lease, rng: random.Random
    ) -> list[BlockSample]:
        sides = ("A", "B") if pair.first == "A" else ("B", "A")
        start = number // lease.plan.pairs_per_start if lease.plan.starts else 0
        made = [
            block(pair, number, side, at, start, self.noise(rng) - self.effect * (side == "B"))
            for at, side in enumerate(sides)
        ]
        return [_differing(b) if self.differs and b.side == "B" and not number else b for b in made]

    def _grades(self, blocks: list[BlockSample]) -> tuple[Grade, ...]:
        graded = next((item for item in blocks if item.side == "B"), None)
        if graded is None:
            return ()
        count = len(graded.requests[0].tokens)
        gaps = (*[0.0] * (count - 1), self.gap if self.differs else 0.0)
        return (Grade(graded.pair, 0, gaps, (-0.5,) * count, not self.differs),)

    @staticmethod
    def _units(lease: Lease, blocks: list[BlockSample]) -> list[float]:
        found: dict[int, list[float]] = {}
        for first, second in zip(blocks[::2], blocks[1::2], strict=True):
            a, b = (first, second) if first.side == "A" else (second, first)
            ratio = log_ratio(lease.objective.metric, Pair(first.pair, first.start, a, b))
            found.setdefault(first.start if lease.plan.starts else first.pair, []).append(ratio)
        whole = lease.plan.pairs_per_start if lease.plan.starts else 1
        return [sum(r) / len(r) for r in found.values() if len(r) == whole]


def block(
    pair: PairScript, number: int, side: Any, position: int, start: int = 0, log_factor: float = 0.0
) -> BlockSample:
    """A block whose tokens come every 20 ms times exp(log_factor)."""
    gap_ns = TOKEN_NS * pow(2.718281828459045, log_factor)
    samples = []
    for item in pair.requests:
        sent_ns = round(item.at_s * 1e9)
        times = tuple(sent_ns + round(gap_ns * (i + 1)) for i in range(item.max_tokens))
        tokens = tuple((item.prompt[0] + i) % 997 for i in range(item.max_tokens))
        samples.append(RequestSample(item.id, sent_ns, tokens, times, "length"))
    wall_ns = max(item.token_ns[-1] for item in samples)
    untimed = tuple(
        RequestSample(item.id, 0, (7,) * item.max_tokens, (1,) * item.max_tokens, "length")
        for item in pair.warm_up
    )
    return BlockSample(number, start, side, position, wall_ns, tuple(samples), warm_up=untimed)


def _differing(item: BlockSample) -> BlockSample:
    """The same block with another last token in its first request."""
    first = item.requests[0]
    tokens = (*first.tokens[:-1], first.tokens[-1] + 1)
    changed = msgspec.structs.replace(first, tokens=tokens)
    return msgspec.structs.replace(item, requests=(changed, *item.requests[1:]))
