"""What a verdict is worth, and the release that a confirmed winner becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from protos.release import Release
from protos.target import Limit, Objective
from protos.trial import Word
from scheduler.leases import merged_builds, merged_files, merged_knobs
from scheduler.state import Campaign, CandidateState, TrialState

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


def shortfall(trial: TrialState, objective: Objective) -> str | None:
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


def _too_small(trial: TrialState) -> str | None:
    if trial.estimate is not None and math.log(trial.estimate) < trial.least_gain:
        return f"fast: gains less than {trial.least_gain:.1%}, which seldom wins a slow trial here"
    return None


def won(campaign: Campaign, candidate: CandidateState, tier: str) -> bool:
    trial = campaign.trials.get(candidate.trials.get(tier, ""))
    return (
        trial is not None
        and trial.status == "ended"
        and shortfall(trial, campaign.opening.objective) is None
    )


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
        evidence=tuple(candidate.trials[tier] for tier in ("fast", "slow", "cold")),
    )
