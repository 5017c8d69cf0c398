"""What a verdict is worth, and the release that a confirmed winner becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from protos.release import Release
from protos.target import Limit, Objective
from protos.trial import Tier, Verdict, Word
from scheduler.leases import merged_builds, merged_files, merged_knobs
from scheduler.plans import RECHECK
from scheduler.state import Campaign, CandidateState, TrialState, trial_key

CORRECT: tuple[Word, ...] = ("faster", "slower", "no_gain", "inconclusive")
_STRICTNESS = {"bitwise": 0, "equivalent": 1, "quality": 2}


def acceptable(output_class: str | None, objective: Objective) -> bool:
    """Whether outputs of this class are allowed; a class that wasn't graded is not."""
    if output_class is None:
        return False
    return _STRICTNESS[output_class] <= _STRICTNESS[objective.output_class]


def keeps(limits: tuple[Limit, ...], metrics: Mapping[str, float]) -> bool:
    """Whether every limit was measured and is kept."""
    return all(_kept(limit, metrics.get(limit.metric)) for limit in limits)


def _kept(limit: Limit, value: float | None) -> bool:
    if value is None:
        return False
    if limit.at_most is not None and value > limit.at_most:
        return False
    return limit.at_least is None or value >= limit.at_least


@dataclass(frozen=True)
class Outcome:
    """What deciding needs of a judged trial. `estimate`, `low`, `high` are ratios B/A."""

    tier: str
    word: str | None
    output_class: str | None
    metrics_b: Mapping[str, float]
    estimate: float | None
    low: float | None
    high: float | None
    least_gain: float = 0.0

    @classmethod
    def of(cls, verdict: Verdict) -> Outcome:
        found = verdict.interval
        ratios = (found.estimate, found.low, found.high) if found else (None, None, None)
        words = (verdict.tier, verdict.word, verdict.output_class, verdict.metrics_b)
        return cls(*words, *ratios)


def shortfall(trial: TrialState | Outcome, objective: Objective) -> str | None:
    """Why an ended trial is no win for its tier; None where it is one.

    Fast trials are short: they must be faster, and by as much as this campaign's slow trials have
    shown to be worth one (nothing yet: by anything). Slow ones must also gain `min_effect` and keep
    the limits; a cold one must be faster again and keep the limits.
    """
    if trial.word != "faster":
        return f"{trial.tier}: {trial.word}"
    if not acceptable(trial.output_class, objective):
        return f"{trial.tier}: outputs are {trial.output_class or 'not graded'}"
    if trial.tier == "fast":
        return _too_small(trial)
    if not keeps(objective.limits, trial.metrics_b):
        return f"{trial.tier}: a limit is not kept"
    if trial.tier == "slow" and (
        trial.estimate is None or math.log(trial.estimate) < objective.min_effect
    ):
        return f"{trial.tier}: gains less than {objective.min_effect:.1%}"
    return None


def _too_small(trial: TrialState | Outcome) -> str | None:
    if trial.estimate is not None and math.log(trial.estimate) < trial.least_gain:
        return f"fast: gains less than {trial.least_gain:.1%}, which seldom wins a slow trial here"
    return None


def agrees(
    first: TrialState | Outcome, again: TrialState | Outcome, objective: Objective
) -> str | None:
    """Why an independent trial doesn't bear a quarantined gain out; None where it does.

    It must win by itself, and neither trial's interval may rule out what the other one saw.
    """
    lost = shortfall(again, objective)
    if lost is not None:
        return lost
    if _above(first.low, again.high) or _above(again.low, first.high):
        return f"{again.tier}: {first.estimate} and {again.estimate} times as good don't agree"
    return None


def _above(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > high


def first_quarantined(campaign: Campaign, candidate: CandidateState) -> Tier | None:
    """The first tier whose trial came out suspicious: the one that is run again, once."""
    tiers: tuple[Tier, ...] = ("fast", "slow", "cold")
    for tier in tiers:
        trial = campaign.trials.get(candidate.trials.get(tier, ""))
        if trial is not None and trial.status == "ended" and trial.quarantined is not None:
            return tier
    return None


def won(campaign: Campaign, candidate: CandidateState, tier: str) -> bool:
    """Whether the tier's trial is a win; of the first suspicious one, whether a second agreed."""
    objective = campaign.opening.objective
    trial = campaign.trials.get(candidate.trials.get(tier, ""))
    if trial is None or trial.status != "ended" or shortfall(trial, objective) is not None:
        return False
    if first_quarantined(campaign, candidate) != tier:
        return True
    again = campaign.trials.get(candidate.trials.get(trial_key(tier, RECHECK), ""))
    return again is not None and again.status == "ended" and agrees(trial, again, objective) is None


def next_release(campaign: Campaign, candidate: CandidateState) -> Release:
    """The incumbent with the candidate in it. Raises ValueError where the evidence isn't whole."""
    base, check = campaign.incumbent, candidate.check
    if base is None or check is None or candidate.candidate.base != base.id:
        raise ValueError(f"{candidate.id} doesn't stand on the incumbent")
    if not all(won(campaign, candidate, tier) for tier in ("fast", "slow", "cold")):
        raise ValueError(f"{candidate.id} hasn't won its fast, slow and cold trials")
    change = candidate.candidate
    return Release(
        campaign=campaign.id,
        number=base.number + 1,
        files=merged_files(base.files, change.files),
        knobs=merged_knobs(base.knobs, change.knobs),
        builds=merged_builds(base.builds, change.builds),
        libraries={**base.libraries, **check.libraries},
        parent=base.id,
        candidate=candidate.id,
        evidence=_stands_on(campaign, candidate),
    )


def _stands_on(campaign: Campaign, candidate: CandidateState) -> tuple[str, ...]:
    """The ended trials of the three tiers, second looks included."""
    tiers = ("fast", "slow", "cold")
    keys = [trial_key(tier, purpose) for tier in tiers for purpose in ("", RECHECK)]
    ids = [candidate.trials[key] for key in keys if key in candidate.trials]
    return tuple(id for id in ids if campaign.trials[id].status == "ended")
