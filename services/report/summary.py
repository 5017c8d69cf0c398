"""`summary.json`: the campaign in numbers, from its record alone. Pure.

A printed gain comes only from the closing trial (purpose `final`): the release against the start,
interleaved, cold, on fresh seeds. Without that trial there is none, and `gain` is null.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from protos.canary import ARM, Kind, kind_of
from protos.candidate import Candidate
from protos.messages import OpenCampaign
from protos.release import Release
from protos.target import Objective, Target, Workload
from protos.trial import Interval, Verdict
from services.canaries import CanaryLine, canary_lines
from services.report.record import FINAL, RANDOM_FINAL, CampaignRecord, TrialRecord
from services.tiers import TierAgreement, seen_of, tier_agreement


class Gain(msgspec.Struct, frozen=True):
    """A ratio over the start (> 1 is better) with its interval, and what it is measured against."""

    metric: str
    estimate: float
    low: float | None
    high: float | None
    denominator: str
    units: int
    unit: str
    candidate: str | None = None


class Starts(msgspec.Struct, frozen=True):
    """How often engines came up on a rung, and the median seconds it took."""

    count: int
    p50_s: float | None


class Spend(msgspec.Struct, frozen=True):
    """What the campaign used: engine-seconds of all trials, and what proposals cost."""

    device_s: float
    llm_tokens: int
    llm_usd: float
    proposal_s: float


class QualityLine(msgspec.Struct, frozen=True):
    """One measure of the closing trial: the start and the release on the same set, beside the start
    in float32. `worse_by_at_most` is the 95 % bound of the release's loss against that."""

    name: str
    unit: str
    float32: float
    start: float
    release: float
    worse_by_at_most: float
    margin: float
    items: int
    ok: bool


class FalsePromotions(msgspec.Struct, frozen=True):
    """How many releases without a gain this campaign's rules can have let through, at most.

    A candidate without effect passes a tier with at most that tier's alpha whatever came before,
    since each trial's order of sides is drawn anew: `each` is the product over the tiers, and
    `expected_at_most` that times the candidates that had a fast trial.
    """

    candidates: int
    alphas: dict[str, float]
    each: float
    expected_at_most: float


class ReleaseLine(msgspec.Struct, frozen=True):
    """One release, and the trials it stands on."""

    number: int
    id: str
    candidate: str | None
    label: str
    trials: tuple[str, ...]
    after_s: float


class Summary(msgspec.Struct, frozen=True):
    """The whole of `summary.json`."""

    campaign: str
    state: str
    reason: str
    target: Target
    workload: Workload
    objective: Objective
    start: dict[str, float]
    release: dict[str, float]
    gain: Gain | None
    random_arm: Gain | None
    verdicts: dict[str, int]
    trials: dict[str, int]
    starts: dict[str, Starts]
    spend: Spend
    wall_s: float
    releases: tuple[ReleaseLine, ...]
    lost_trials: dict[str, int]
    tiers: TierAgreement
    quality: tuple[QualityLine, ...]
    false_promotions: FalsePromotions | None
    canaries: tuple[CanaryLine, ...]


def summarise(record: CampaignRecord) -> Summary:
    """The summary of a campaign that was opened. Raises ValueError for one that wasn't."""
    opening = record.opening
    if opening is None:
        raise ValueError(f"campaign {record.campaign} was never opened")
    final = record.closing(FINAL)
    verdict = final.verdict if final else None
    return Summary(
        campaign=record.campaign,
        state=record.state,
        reason=record.reason,
        target=opening.target,
        workload=opening.workload,
        objective=opening.objective,
        start=dict(verdict.metrics_a) if verdict else {},
        release=dict(verdict.metrics_b) if verdict else {},
        gain=_gain(final, opening),
        random_arm=_gain(record.closing(RANDOM_FINAL), opening),
        verdicts=record.verdict_counts(),
        trials=record.trial_counts(),
        starts=_starts(record),
        spend=_spend(record),
        wall_s=round(record.spent_s(record.last_s or 0.0), 3),
        releases=tuple(_releases(record)),
        lost_trials=dict(Counter(record.losses())),
        quality=_quality(verdict),
        tiers=_tiers(record, opening.objective.min_effect),
        false_promotions=_false_promotions(record),
        canaries=canary_lines(_judged_canaries(record)),
    )


def to_json(summary: Summary) -> bytes:
    """The file's bytes: indented JSON, contract structs without their wire tags."""
    plain: Any = msgspec.json.decode(msgspec.json.encode(summary))
    for name in ("target", "workload", "objective"):
        _untag(plain[name])
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def denominator(trial: TrialRecord, interval: Interval, opening: OpenCampaign) -> str:
    """What a gain is measured against, in words."""
    return (
        f"{interval.metric} of the start release on this machine, workload "
        f"{opening.workload.name}, interleaved, fresh seeds, {interval.units} {interval.unit} "
        f"({trial.lease.tier})"
    )


def _gain(trial: TrialRecord | None, opening: OpenCampaign) -> Gain | None:
    if trial is None or trial.verdict is None or trial.verdict.interval is None:
        return None
    interval = trial.verdict.interval
    return Gain(
        metric=interval.metric,
        estimate=interval.estimate,
        low=interval.low,
        high=interval.high,
        denominator=denominator(trial, interval, opening),
        units=interval.units,
        unit=interval.unit,
        candidate=trial.verdict.candidate,
    )


def _quality(verdict: Verdict | None) -> tuple[QualityLine, ...]:
    """None of them where the closing trial is missing or its engines can't be scored."""
    return tuple(
        QualityLine(
            one.name, one.unit, one.start, one.a, one.b, one.upper, one.margin, one.count, one.ok
        )
        for one in (verdict.quality if verdict else ())
    )


def _tiers(record: CampaignRecord, min_effect: float) -> TierAgreement:
    verdicts = (trial.verdict for trial in record.judged() if not trial.lease.purpose)
    audits = (trial.verdict for trial in record.judged() if trial.lease.purpose == "audit")
    known = [verdict for verdict in (*verdicts, *audits) if verdict is not None]
    return tier_agreement(seen_of(known, min_effect), min_effect)


def _judged_canaries(record: CampaignRecord) -> Iterator[tuple[Kind, str, str]]:
    for trial in record.judged():
        known = record.candidates.get(trial.lease.side_b.candidate or "")
        if known is None or known.candidate.arm != ARM or trial.verdict is None:
            continue
        kind = kind_of(known.candidate.label)
        if kind is not None:
            yield kind, trial.lease.tier, trial.verdict.word


def _false_promotions(record: CampaignRecord) -> FalsePromotions | None:
    """None while no trial of the last tier was granted: nothing can have been promoted."""
    alphas: dict[str, float] = {}
    searched: set[str] = set()
    for trial in record.trials.values():
        lease = trial.lease
        if lease.purpose == "":
            alphas[lease.tier] = max(alphas.get(lease.tier, 0.0), lease.plan.rule.alpha)
            if lease.tier == "fast" and lease.side_b.candidate:
                searched.add(lease.side_b.candidate)
    if "cold" not in alphas:
        return None
    each = math.prod(alphas.values())
    return FalsePromotions(len(searched), alphas, each, each * len(searched))


def _starts(record: CampaignRecord) -> dict[str, Starts]:
    seconds: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for trial in record.judged():
        verdict = trial.verdict
        if verdict is None:
            continue
        # A cold trial starts each side from disk once a unit; the others start side B once.
        times = trial.lease.plan.starts or 1
        counts[verdict.rung] = counts.get(verdict.rung, 0) + times
        if verdict.start_s is not None:
            seconds.setdefault(verdict.rung, []).append(verdict.start_s)
    return {
        rung: Starts(count, round(statistics.median(seconds[rung]), 4) if rung in seconds else None)
        for rung, count in counts.items()
    }


def _spend(record: CampaignRecord) -> Spend:
    costs = [known.candidate.cost for known in record.candidates.values()]
    device_s = record.device_s
    if device_s is None:
        device_s = sum(trial.verdict.device_s for trial in record.judged() if trial.verdict)
    return Spend(
        device_s=round(device_s, 3),
        llm_tokens=sum(cost.llm_tokens for cost in costs),
        llm_usd=sum(cost.llm_usd for cost in costs),
        proposal_s=round(sum(cost.wall_s for cost in costs), 3),
    )


def _releases(record: CampaignRecord) -> list[ReleaseLine]:
    opened_s = record.opened_s or 0.0
    return [
        ReleaseLine(
            number=known.release.number,
            id=known.release.id,
            candidate=known.release.candidate,
            label=_label(record, known.release),
            trials=known.trials,
            after_s=round(known.at_s - opened_s, 1),
        )
        for known in record.releases
    ]


def _label(record: CampaignRecord, release: Release) -> str:
    if release.number == 0:
        return "start"
    known = record.candidates.get(release.candidate or "")
    candidate: Candidate | None = known.candidate if known else None
    return (candidate.label if candidate else "") or release.candidate or release.id


def _untag(value: Any) -> None:
    """Drop the wire's `type` tags, which mean nothing in a file for people."""
    if isinstance(value, dict):
        value.pop("type", None)
        for item in value.values():
            _untag(item)
    elif isinstance(value, list):
        for item in value:
            _untag(item)
