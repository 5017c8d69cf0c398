"""Where a candidate stands, from its check and its trials alone."""

from __future__ import annotations

from protos.canary import ARM
from protos.ids import digest_value
from protos.trial import Tier
from scheduler.plans import RECHECK
from scheduler.promotion import CORRECT, agrees, shortfall
from scheduler.state import (
    MAX_ATTEMPTS,
    Campaign,
    CandidateState,
    Stage,
    TrialState,
    trial_key,
)

_FIXED: tuple[Stage, ...] = ("refused", "rebased", "promoted")
# Each tier with the stage of who waits for it.
_RACE: tuple[tuple[Tier, Stage], ...] = (
    ("fast", "ready"),
    ("slow", "won_fast"),
    ("cold", "won_slow"),
)


def stage_of(campaign: Campaign, candidate: CandidateState) -> tuple[Stage, str]:
    """The stage and why. A voided or lost trial puts the candidate back to before it."""
    if candidate.stage in _FIXED:
        return candidate.stage, candidate.reason
    if candidate.check is None:
        return "admitted", ""
    if not candidate.check.ok:
        return "invalid", candidate.check.reason
    fast = _trial(campaign, candidate, "fast")
    if fast is None or fast.status != "ended":
        return _waiting(fast, "ready")
    lost = shortfall(fast, campaign.opening.objective)
    if candidate.candidate.arm == ARM:
        return ("done", lost) if lost else _after_fast_canary(campaign, candidate)
    if lost is None and candidate.candidate.arm == "search" and campaign.opening.policy.promote:
        return _after_fast(campaign, candidate)
    if fast.word in CORRECT and _audit_due(campaign, candidate):
        return _waiting(_trial(campaign, candidate, "slow"), "audit")
    return "done", lost or "fast: faster, and not for promotion"


def _after_fast(campaign: Campaign, candidate: CandidateState) -> tuple[Stage, str]:
    """From a won fast trial on. A quarantined gain needs a second look before it counts."""
    objective, looked_at = campaign.opening.objective, False
    for tier, stage in _RACE:
        trial = _trial(campaign, candidate, tier)
        if trial is None or trial.status != "ended":
            return _waiting(trial, stage)
        lost = shortfall(trial, objective)
        if lost is not None:
            return "done", lost
        if trial.quarantined is None or looked_at:
            continue
        again = _trial(campaign, candidate, trial_key(tier, RECHECK))
        if again is None or again.status != "ended":
            return _waiting(again, "recheck")
        apart = agrees(trial, again, objective)
        if apart is not None:
            return "done", f"quarantined ({trial.quarantined}); a second look: {apart}"
        looked_at = True  # later tiers are independent trials by themselves
    return "won_cold", ""


def _after_fast_canary(campaign: Campaign, candidate: CandidateState) -> tuple[Stage, str]:
    """One that won its fast trial has a slow one, and no more: a cold one costs too much."""
    slow = _trial(campaign, candidate, "slow")
    if slow is None or slow.status != "ended":
        return _waiting(slow, "won_fast")
    return "done", "a canary goes no further"


def drawn_for_audit(candidate: str, share: float) -> bool:
    """Whether a candidate's id falls into the audited share, the same in every replay."""
    return int(digest_value(["audit", candidate])[:8], 16) < share * 2**32


def _audit_due(campaign: Campaign, candidate: CandidateState) -> bool:
    slow = _trial(campaign, candidate, "slow")
    if slow is not None and slow.status == "ended":
        return False
    change = candidate.candidate
    if change.arm != "random" and not campaign.is_on_incumbent(change):
        return False  # no engine runs its base any more
    return drawn_for_audit(candidate.id, campaign.opening.policy.audit_slow_share)


def _waiting(trial: TrialState | None, stage: Stage) -> tuple[Stage, str]:
    if trial is not None and trial.status == "lost" and trial.attempt >= MAX_ATTEMPTS:
        return "parked", f"{trial.tier}: lost {trial.attempt} times, at last: {trial.reason}"
    return stage, ""


def _trial(campaign: Campaign, candidate: CandidateState, tier: str) -> TrialState | None:
    return campaign.trials.get(candidate.trials.get(tier, ""))
