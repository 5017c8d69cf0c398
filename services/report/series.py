"""What the report's figures show, taken from the record and the evidence. Pure but for blobs."""

from collections import defaultdict
from dataclasses import dataclass

from protos.trial import Evidence, Interval, Verdict
from services.blobs import Blobs
from services.report.evidence import pair_ratios, read_evidence
from services.report.record import FINAL, RANDOM_FINAL, CampaignRecord, TrialRecord


@dataclass(frozen=True)
class Step:
    """One fast trial: the metric of both sides, and when."""

    minutes: float
    incumbent: float
    candidate: float
    word: str


@dataclass(frozen=True)
class Dot:
    """One candidate that both tiers measured: B/A of each."""

    label: str
    fast: float
    slow: float


@dataclass(frozen=True)
class PairPanel:
    """The pairs of one trial; `void` marks those that don't count."""

    name: str
    title: str
    ratios: tuple[float, ...]
    void: tuple[bool, ...]
    interval: Interval | None


@dataclass(frozen=True)
class TimeBar:
    """Seconds that went into one thing."""

    name: str
    seconds: float


def steps(record: CampaignRecord) -> list[Step]:
    """Every fast trial that measured the objective's metric on both sides, in time order."""
    out = []
    for trial in record.judged():
        verdict = trial.verdict
        if verdict is None or verdict.tier != "fast" or record.opening is None:
            continue
        metric = record.opening.objective.metric
        if metric in verdict.metrics_a and metric in verdict.metrics_b:
            a, b = verdict.metrics_a[metric], verdict.metrics_b[metric]
            out.append(Step(minutes(record, trial.ended_s or 0.0), a, b, verdict.word))
    return out


def minutes(record: CampaignRecord, at_s: float) -> float:
    """Minutes from the campaign's opening to a time of the ledger."""
    return (at_s - (record.opened_s or at_s)) / 60.0


def promotions(record: CampaignRecord) -> list[float]:
    """When releases were made, in minutes; the start is none."""
    return [minutes(record, known.at_s) for known in record.releases if known.release.number > 0]


def fast_slow(record: CampaignRecord) -> list[Dot]:
    """Candidates with an interval from both tiers."""
    dots = []
    for known in record.candidates.values():
        by_tier = {
            verdict.tier: verdict.interval.estimate
            for verdict in _verdicts(record, known.trials)
            if verdict.interval is not None
        }
        if "fast" in by_tier and "slow" in by_tier:
            label = known.candidate.label or known.candidate.id
            dots.append(Dot(label, by_tier["fast"], by_tier["slow"]))
    return dots


def panels(record: CampaignRecord, blobs: Blobs) -> list[PairPanel]:
    """The closing trials, then the cold trial of each release, newest first."""
    wanted: list[tuple[str, str, TrialRecord]] = []
    for purpose, title in (
        (FINAL, "The release against the start"),
        (RANDOM_FINAL, "The best of the random arm against the start"),
    ):
        closing = record.closing(purpose)
        if closing is not None:
            wanted.append((purpose, title, closing))
    for known in reversed(record.releases):
        for name in known.trials:
            trial = record.trials.get(name)
            if trial is not None and trial.lease.tier == "cold":
                number = known.release.number
                title = f"Release {number} against release {number - 1}, cold starts"
                wanted.append((f"release-{number}", title, trial))
    panels = [_panel(name, title, trial, blobs) for name, title, trial in wanted]
    return [panel for panel in panels if panel is not None]


def time_bars(record: CampaignRecord, blobs: Blobs) -> list[TimeBar]:
    """Engine-host seconds by phase over all trials, and the evaluator's checks and builds."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for trial in record.judged():
        evidence = read_evidence(blobs, trial.verdict) if trial.verdict else None
        if evidence is not None:
            for phase, value in evidence.phases_s.items():
                seconds[f"trial: {phase}"] += value
    for known in record.candidates.values():
        if known.check is not None:
            seconds["checks"] += known.check.check_s
            seconds["builds"] += known.check.build_s
    for rebuilt in record.rebuilds:
        seconds["engine rebuilds"] += rebuilt.wall_s
    return [TimeBar(name, value) for name, value in seconds.items() if value > 0]


def _panel(name: str, title: str, trial: TrialRecord, blobs: Blobs) -> PairPanel | None:
    evidence = read_evidence(blobs, trial.verdict) if trial.verdict else None
    if evidence is None or trial.verdict is None:
        return None
    ratios, void = _ratios(evidence)
    return PairPanel(name, title, ratios, void, trial.verdict.interval) if ratios else None


def _ratios(evidence: Evidence) -> tuple[tuple[float, ...], tuple[bool, ...]]:
    measured = [pair for pair in pair_ratios(evidence) if pair.ratio is not None]
    ratios = tuple(pair.ratio for pair in measured if pair.ratio is not None)
    return ratios, tuple(pair.void is not None for pair in measured)


def _verdicts(record: CampaignRecord, trials: list[str]) -> list[Verdict]:
    found = (record.trials[name].verdict for name in trials)
    return [verdict for verdict in found if verdict is not None]
