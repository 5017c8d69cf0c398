"""A gain of known size: side A is the start, made slower by work whose size is found first."""

from __future__ import annotations

import math
import statistics
import sys
from dataclasses import dataclass

import msgspec

from benchmarks.battery.trying import opening
from benchmarks.bench_host import Bench
from benchmarks.mix import Sources, slower_rows
from benchmarks.sources import slim_sources
from protos.metrics import pair_units
from protos.stopping import estimate
from protos.trial import Evidence, Plan, Side, StopRule
from scheduler.plans import plan_for

GAIN = 1.05
ENGINE_S = 10.0
FIRST_ROWS = 12_000  # of weights a pass, to learn what one costs
CALIBRATION_UNITS, CALIBRATION_TRIALS = 100, 4


@dataclass(frozen=True)
class Planted:
    """The start, made slower by going over `rows` rows of its weights once more in every pass.

    That costs a share of a pass, whatever the speed of the machine's memory is just now.
    """

    side: Side
    rows: int


def slower(bench: Bench, sources: Sources, rows: int) -> Planted:
    """A release that goes over so many rows of its weights once more than the start."""
    (path, text), *_ = slower_rows(sources, rows).items()
    start = bench.prepared.start_side
    files = {**start.files, path: bench.judge.blobs.put(text.encode())}
    return Planted(Side(f"slower-{rows}", files, start.knobs, start.libraries), rows)


def start_as_candidate(bench: Bench) -> Side:
    """The start release as side B."""
    start = bench.prepared.start_side
    return msgspec.structs.replace(start, candidate="start")


async def calibrated(bench: Bench, gain: float, say: str) -> Planted:
    """A slower release against which the start gains `gain`, as near as it can be measured."""
    sources, known = slim_sources(), [(0, 1.0)]
    planted = slower(bench, sources, FIRST_ROWS)
    for _ in range(3):
        seen = math.exp(await _effect(bench, planted))
        _say(f"{say}: {planted.rows} rows a pass make {seen:.4f}")
        known.append((planted.rows, seen))
        planted = slower(bench, sources, _between(known, gain))
    return planted


def _between(known: list[tuple[int, float]], gain: float) -> int:
    """Rows on the line through the two measurements that came nearest to `gain`."""
    (near, seen), (far, other) = sorted(known, key=lambda one: abs(one[1] - gain))[:2]
    return max(1, round(near + (gain - seen) * (far - near) / (other - seen)))


async def _effect(bench: Bench, planted: Planted) -> float:
    """The log-ratio of the start to a slower release, over several starts of the former."""
    fast, units_a_trial = plan_for(opening(bench), "fast", "").rule, CALIBRATION_UNITS
    rule = StopRule(fast.alpha, fast.min_effect, units_a_trial, units_a_trial, "fixed", fast.unit)
    plan = Plan("fast", rule, grade_requests=0, prove_engagement=False)
    found = []
    for _ in range(CALIBRATION_TRIALS):
        _, evidence = await bench.run(start_as_candidate(bench), plan, planted.side)
        if evidence.failure:
            raise RuntimeError(f"a trial against a slower release failed: {evidence.detail}")
        found.append(estimate(units(evidence)))
    return statistics.fmean(found)


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
