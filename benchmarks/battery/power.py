"""A gain of known size: side A is the start, made slower by work whose size is found first."""

from __future__ import annotations

import math
import statistics
import sys
from dataclasses import dataclass

import msgspec

from benchmarks.battery.fixture import SCHEDULER, Sources, guarded
from benchmarks.battery.trying import opening
from benchmarks.bench_host import Bench
from benchmarks.sources import slim_sources
from protos.metrics import pair_units
from protos.stopping import estimate
from protos.trial import Evidence, Plan, Side, StopRule
from scheduler.plans import plan_for

GAIN = 1.05
ENGINE_S = 10.0
FIRST_ROUNDS = 40_000  # additions a step, to learn what one costs
CALIBRATION_UNITS = 200


@dataclass(frozen=True)
class Planted:
    """The start, made slower by `rounds` additions in every step."""

    side: Side
    rounds: int


def slower(bench: Bench, sources: Sources, rounds: int) -> Planted:
    """A release that spends `rounds` additions a step more than the start."""
    code = f"sum(range({rounds}))\n"
    (path, text), *_ = guarded(sources, (SCHEDULER, "Scheduler.plan", code)).items()
    start = bench.prepared.start_side
    files = {**start.files, path: bench.judge.blobs.put(text.encode())}
    return Planted(Side(f"slower-{rounds}", files, start.knobs, start.libraries), rounds)


def start_as_candidate(bench: Bench) -> Side:
    """The start release as side B."""
    start = bench.prepared.start_side
    return msgspec.structs.replace(start, candidate="start")


async def calibrated(bench: Bench, gain: float, say: str) -> Planted:
    """A slower release against which the start gains `gain`, measured a second time to be sure."""
    sources, rounds = slim_sources(), FIRST_ROUNDS
    planted = slower(bench, sources, rounds)
    for _ in range(2):
        seen = math.exp(await _effect(bench, planted))
        _say(f"{say}: {planted.rounds} additions a step make {seen:.4f}")
        rounds = max(1, round(planted.rounds * (gain - 1.0) / max(1e-3, seen - 1.0)))
        planted = slower(bench, sources, rounds)
    return planted


async def _effect(bench: Bench, planted: Planted) -> float:
    """The log-ratio of the start to a slower release."""
    fast = plan_for(opening(bench), "fast", "")
    rule = StopRule(
        fast.rule.alpha,
        fast.rule.min_effect,
        CALIBRATION_UNITS,
        CALIBRATION_UNITS,
        "fixed",
        fast.rule.unit,
    )
    plan = Plan("fast", rule, grade_requests=0, prove_engagement=False)
    _, evidence = await bench.run(start_as_candidate(bench), plan, planted.side)
    if evidence.failure:
        raise RuntimeError(f"a trial against a slower release failed: {evidence.detail}")
    return estimate(units(evidence))


def units(evidence: Evidence) -> list[float]:
    """What the rule counted: log-ratios of the counted pairs or their turns."""
    rule, found = evidence.lease.plan.rule, []
    sides: dict[int, dict[str, int]] = {}
    for at, block in enumerate(evidence.blocks):
        sides.setdefault(block.pair, {})[block.side] = at
    for both in sides.values():
        a, b = (evidence.blocks[both[side]] for side in "AB")
        if a.void is None and b.void is None:
            found += pair_units("output_tok_s", a, b, rule.unit) or []
    return found


def engine_s(evidence: Evidence) -> float:
    """Seconds that either side was timed for, void blocks included."""
    return sum(sum(block.turn_ns) or block.wall_ns for block in evidence.blocks) / 1e9


async def power(bench: Bench, trials: int) -> dict[str, object]:
    """How often a true gain of 5 % is found within ten engine-seconds, and how soon."""
    planted = await calibrated(bench, GAIN, "power")
    plan = await _ten_seconds(bench, planted)
    seen, took, effects = 0, list[float](), list[float]()
    for number in range(trials):
        _, evidence = await bench.run(start_as_candidate(bench), plan, planted.side)
        verdict, spent_s = bench.verdict(evidence), engine_s(evidence)
        hit = verdict.word == "faster" and spent_s <= ENGINE_S
        seen += hit
        took += [spent_s] if hit else []
        effects += units(evidence)
        _say(f"  power {number}: {verdict.word} in {spent_s:.2f} engine-seconds: {verdict.reason}")
    return {
        "power_5pct_10s": round(seen / trials, 3),
        "power_trials": trials,
        "power_planted": round(math.exp(estimate(effects)), 4),
        "power_median_s": round(statistics.median(took), 2) if took else None,
    }


async def _ten_seconds(bench: Bench, planted: Planted) -> Plan:
    """The campaign's own fast plan, allowed as many units as fit in ten engine-seconds."""
    plan = plan_for(opening(bench), "fast", "")
    rule = msgspec.structs.replace(plan.rule, max_units=40, min_units=40, mode="fixed")
    trial = msgspec.structs.replace(plan, rule=rule, prove_engagement=False, grade_requests=0)
    _, evidence = await bench.run(start_as_candidate(bench), trial, planted.side)
    each_s = engine_s(evidence) / max(1, len(units(evidence)))
    most = max(plan.rule.max_units, int(0.9 * ENGINE_S / each_s))
    rule = msgspec.structs.replace(plan.rule, max_units=most)
    return msgspec.structs.replace(plan, rule=rule, prove_engagement=False)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
