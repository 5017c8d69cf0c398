"""The verdict of a trial, from its evidence and script alone. Pure: same blobs, same verdict.

Order: what ended the trial early; whether evidence, seed and script fit together; missing outputs;
the stop, derived again from the raw samples; engagement; output class; then the statistics.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evaluator.blocks import (
    EvidenceError,
    Pair,
    check_grades,
    check_seed,
    last_alone,
    looks_of,
    output_fault,
    pairs_of,
    pooled,
    said_of,
    side_metrics,
    stop_of,
)
from evaluator.grade import LOOSENESS, Graded, constant_output, grade, repetition
from evaluator.quality import Suite, suite
from evaluator.seeds import commitment_of
from protos.metrics import log_ratio
from protos.stopping import Decision, estimate, lower_bound, upper_bound
from protos.target import Limit
from protos.trial import Evidence, Interval, QualityMeasure, Script, StopRule, Verdict, Word

HUGE_GAIN = 8.0  # a ratio that nobody should believe without an independent look
# A side that could make its own unlucky blocks void would be left with the lucky ones. Noise from
# outside hits both sides alike: this many of side B, and over three times as many as of side A.
LOPSIDED_VOIDS = 5

__all__ = ["EvidenceError", "judge"]


@dataclass(frozen=True)
class _Finding:
    """What is known so far; every verdict is made from one."""

    interval: Interval | None = None
    output_class: str | None = None
    metrics_a: dict[str, float] = field(default_factory=dict)
    metrics_b: dict[str, float] = field(default_factory=dict)
    voided_blocks: int = 0
    quarantined: str | None = None
    quality: tuple[QualityMeasure, ...] = ()


def judge(
    evidence: Evidence, script: Script | None, digest: str, derived: Script | None
) -> Verdict:
    """Judge one trial.

    `digest` names the evidence blob. `script` is the one the host ran; `derived` the one that
    follows from its seed. Raises EvidenceError when the evidence contradicts its plan, script or
    itself: then the trial is lost, which is no verdict on the candidate.
    """
    if evidence.failure is not None:
        reason = f"{evidence.failure} failed: {evidence.detail or 'no detail'}"
        return _verdict(evidence, digest, "invalid", reason, _Finding())
    if evidence.engaged is False and script is None and not evidence.blocks:
        reason = f"the change never ran: {evidence.engaged_detail}"
        return _verdict(evidence, digest, "not_engaged", reason, _Finding())
    if script is None or derived is None:
        raise EvidenceError("blocks were run without a script")
    check_seed(evidence, script, commitment_of(script.seed))
    if script != derived:
        raise EvidenceError("the script isn't the one that follows from its seed")
    pairs = pairs_of(evidence.blocks, script)
    counted = [pair for pair in pairs if pair.void is None]
    fault = _output_fault(pairs, script) or last_alone(evidence.blocks, script)
    if fault:
        return _verdict(evidence, digest, "incorrect", fault, _Finding())
    if evidence.hopeless:
        return _verdict(evidence, digest, "incorrect", _hopeless(evidence, pairs), _Finding())
    decision, finding = _measure(evidence, script, pairs)
    word, reason = _word(evidence, decision, finding)
    graded = _graded(evidence, pairs, counted)
    if graded is not None:
        passed = None if graded.output_class == "incorrect" else graded.output_class
        finding = replace(finding, output_class=passed)
    found = _suite(evidence, script)
    finding = replace(finding, quality=found.measures if found else ())
    refusal = _refusal(evidence, counted, graded, found, word)
    word, reason = refusal or (word, reason)
    return _verdict(evidence, digest, word, reason, finding)


def _output_fault(pairs: Sequence[Pair], script: Script) -> str | None:
    """Side B's first missing or short output. Side A's would make the evidence worthless.

    Void pairs count too: what a busy machine spoils is times, and a request that fails at once
    makes a block so short that any wait is most of it.
    """
    for pair in pairs:
        expected = script.pairs[pair.number]
        fault = output_fault(pair.a, expected)
        if fault:
            raise EvidenceError(f"side A: {fault}")
        fault = output_fault(pair.b, expected)
        if fault:
            return fault
    return None


def _measure(
    evidence: Evidence, script: Script, pairs: Sequence[Pair]
) -> tuple[Decision, _Finding]:
    plan, metric = evidence.lease.plan, evidence.lease.objective.metric
    cold = plan.starts > 0
    if cold and len(pairs) % plan.pairs_per_start:
        raise EvidenceError(f"{len(pairs)} pairs are no whole starts of {plan.pairs_per_start}")
    looks = looks_of(metric, pairs, plan.rule.unit, cold)
    decision = stop_of(looks, plan.rule, exhausted=len(pairs) == len(script.pairs))
    b = pooled(evidence.blocks, "B")
    units = [unit for look in looks for unit in look]
    interval = _interval(metric, units, plan.rule, cold)
    return decision, _Finding(
        interval=interval,
        metrics_a=_metrics(evidence, "A"),
        metrics_b=_metrics(evidence, "B"),
        voided_blocks=sum(block.void is not None for block in evidence.blocks),
        quarantined=_quarantine(evidence, b.wall_ns, pairs, interval),
    )


def _metrics(evidence: Evidence, side: str) -> dict[str, float]:
    found = side_metrics(pooled(evidence.blocks, side))
    repeated = repetition(evidence.blocks, side)
    return found if repeated is None else {**found, "output_repetition": repeated}


def _interval(metric: str, units: Sequence[float], rule: StopRule, cold: bool) -> Interval | None:
    if not units:
        return None
    low = lower_bound(units, rule.alpha, rule.unit)
    high = upper_bound(units, rule.alpha, rule.unit)
    return Interval(
        metric=metric,
        estimate=math.exp(estimate(units)),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        units=len(units),
        unit="starts" if cold else rule.unit,
    )


def _quarantine(
    evidence: Evidence, wall_ns: int, pairs: Sequence[Pair], interval: Interval | None
) -> str | None:
    """Whether side B beats the physical floor, or is too good to believe unseen.

    The host itself writes `bytes_per_pass` and `bandwidth_bytes_s` into the counters (0: unknown).
    A pass over the weights makes at least one token of every running request.
    """
    size = evidence.counters.get("bytes_per_pass")
    bandwidth = evidence.counters.get("bandwidth_bytes_s")
    if size and bandwidth:
        passes = sum(
            max((len(item.tokens) for item in pair.b.requests), default=0)
            for pair in pairs
            if pair.void is None
        )
        floor_ns = passes * size / bandwidth * 1e9
        if wall_ns < floor_ns:
            return (
                f"{passes} passes over {size} bytes take {floor_ns / 1e6:.1f} ms at "
                f"{bandwidth / 1e9:.1f} GB/s, side B took {wall_ns / 1e6:.1f} ms"
            )
    void = Counter(block.side for block in evidence.blocks if block.void is not None)
    if void["B"] >= LOPSIDED_VOIDS and void["B"] > 3 * (void["A"] + 1):
        return (
            f"{void['B']} blocks of side B came out void, {void['A']} of side A: it may choose them"
        )
    if interval is not None and interval.estimate > HUGE_GAIN:
        return f"{interval.estimate:.1f} times side A is more than {HUGE_GAIN:.0f}: look at it"
    return None


def _word(evidence: Evidence, decision: Decision, finding: _Finding) -> tuple[Word, str]:
    rule, interval = evidence.lease.plan.rule, finding.interval
    if interval is None:
        return "inconclusive", "every pair came out void"
    broken = _broken_limit(evidence, finding.metrics_b)
    if decision == "faster" and broken:
        return "slower", broken
    over = f"over {interval.units} {interval.unit}"
    seen = f"{interval.metric} is {interval.estimate:.3f} times as good as side A's {over}"
    if decision == "faster" and not _gains_over_all(finding, interval.metric):
        return "inconclusive", f"{seen}, but not over all of its time"
    if decision == "faster":
        return "faster", seen
    if decision == "slower":
        return "slower", seen
    if decision == "no_gain":
        return "no_gain", f"{seen}: a gain of {math.exp(rule.min_effect):.3f} is ruled out"
    return "inconclusive", f"{seen}: neither a gain nor its absence is shown"


def _gains_over_all(finding: _Finding, metric: str) -> bool:
    """Whether the whole time says so too: a side may hold outputs back, then put out many at once,
    and look fast in most of its turns."""
    a, b = finding.metrics_a.get(metric), finding.metrics_b.get(metric)
    if a is None or b is None:
        return True
    return log_ratio(metric, a, b) > 0.0


def _broken_limit(evidence: Evidence, metrics: dict[str, float]) -> str | None:
    """The first limit of the objective that side B breaks (slow and cold tiers)."""
    if evidence.lease.tier == "fast":
        return None
    for limit in evidence.lease.objective.limits:
        value = metrics.get(limit.metric)
        if value is None:
            return f"limit {limit.metric} can't be checked: this workload doesn't measure it"
        if _breaks(limit, value):
            return f"limit broken: {limit.metric} is {value:.4g}, {_bound(limit)} was asked for"
    return None


def _breaks(limit: Limit, value: float) -> bool:
    above = limit.at_most is not None and value > limit.at_most
    below = limit.at_least is not None and value < limit.at_least
    return above or below


def _bound(limit: Limit) -> str:
    parts = []
    if limit.at_least is not None:
        parts.append(f"at least {limit.at_least:g}")
    if limit.at_most is not None:
        parts.append(f"at most {limit.at_most:g}")
    return " and ".join(parts)


def _graded(evidence: Evidence, pairs: Sequence[Pair], counted: Sequence[Pair]) -> Graded | None:
    if not evidence.grades:
        return None
    said = said_of(counted)
    check_grades(evidence.grades, pairs, said)
    return grade(evidence.grades, evidence.noise_gap, said)


def _hopeless(evidence: Evidence, pairs: Sequence[Pair]) -> str:
    """Why timing ended early. Raises EvidenceError where the plan or the grades don't say so."""
    allowed = evidence.lease.plan.hopeless_gap
    check_grades(evidence.grades, pairs, said_of([pair for pair in pairs if pair.void is None]))
    gap = max((gap for item in evidence.grades for gap in item.gaps), default=0.0)
    if allowed is None or gap <= allowed:
        raise EvidenceError(f"timing ended early at a gap of {gap:.2f}, the plan says {allowed}")
    return f"an output lies {gap:.2f} logits from the float32 reference: timing ended early"


def _suite(evidence: Evidence, script: Script) -> Suite | None:
    """The quality suite where it was run. Raises EvidenceError where its parts don't fit."""
    if not evidence.quality:
        return None
    try:
        return suite(evidence.quality, script.quality)
    except ValueError as error:
        raise EvidenceError(str(error)) from error


def _refusal(
    evidence: Evidence,
    counted: Sequence[Pair],
    graded: Graded | None,
    found: Suite | None,
    word: Word,
) -> tuple[Word, str] | None:
    """Why the measured word doesn't hold: never ran, or the outputs are not acceptable."""
    if evidence.engaged is False:
        said = (
            evidence.engaged_detail or "no request failed when the changed functions were made to"
        )
        return "not_engaged", f"the change never ran: {said}"
    if constant_output([block for pair in counted for block in (pair.a, pair.b)]):
        return "incorrect", "every output token is the same one, whatever was asked"
    if graded is None:
        if word == "faster" and evidence.lease.plan.grade_requests > 0:
            raise EvidenceError("no output was graded, so a gain can't be believed")
        return None
    refused = _class_refusal(evidence, graded, found, word)
    if refused:
        return "incorrect", refused
    unproved = evidence.lease.plan.prove_engagement and evidence.lease.side_b.changed
    if word == "faster" and unproved and evidence.engaged is None:
        said = evidence.engaged_detail or "the proof wasn't made"
        return "not_engaged", f"a gain without proof that the change ran: {said}"
    return None


def _class_refusal(
    evidence: Evidence, graded: Graded, found: Suite | None, word: Word
) -> str | None:
    accepted = evidence.lease.objective.output_class
    if graded.output_class == "incorrect":
        return graded.reason
    if LOOSENESS[graded.output_class] > LOOSENESS[accepted]:
        return f"{graded.reason}; this campaign accepts {accepted}"
    if graded.output_class != "quality":
        return None
    if found is not None:
        return None if found.ok else found.reason
    if evidence.lease.plan.quality and word == "faster":
        raise EvidenceError("the plan asks for the quality suite, the evidence has none")
    return None


def _verdict(evidence: Evidence, digest: str, word: Word, reason: str, found: _Finding) -> Verdict:
    measured = found.interval is not None
    return Verdict(
        trial=evidence.trial,
        candidate=evidence.lease.side_b.candidate,
        tier=evidence.lease.tier,
        word=word,
        reason=reason,
        evidence=digest,
        interval=found.interval,
        output_class=found.output_class,
        metrics_a=found.metrics_a,
        metrics_b=found.metrics_b,
        voided_blocks=found.voided_blocks,
        alpha_spent=evidence.lease.plan.rule.alpha if measured else 0.0,
        device_s=evidence.device_s,
        rung=evidence.rung,
        start_s=evidence.phases_s.get("start"),
        quarantined=found.quarantined if word == "faster" else None,
        quality=found.quality,
    )
