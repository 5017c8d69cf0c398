"""Racing: which trial an idle engine gets next. Pure.

In order: a second look at a suspicious win, a cold confirm of the best slow winner, a slow trial of
the best fast winner, an audit, a canary that is due, a fast trial of the arm that is behind its
share. Nothing that a promotion would make stale is granted behind a cold confirm; the arms `random`
and `canary`, which run against the start, may be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protos.canary import ARM
from protos.trial import Tier
from scheduler import bandit
from scheduler.admission import ARMS
from scheduler.budget import expected_device_s, expected_s, may_begin, search_left_s
from scheduler.plans import RECHECK
from scheduler.promotion import first_quarantined
from scheduler.state import Campaign, CandidateState, Spend, Stage

DEPTH = 2  # leases a host holds: the running one and the next
COLD_SHARE = 0.5  # of the search arm's device seconds, until nothing else is left to try


@dataclass(frozen=True)
class Choice:
    candidate: str
    tier: Tier
    purpose: str = ""


def choose(campaign: Campaign, now_s: float) -> Choice | None:
    """The next search trial, for any host; None if nothing fits now.

    Raises nothing; a campaign without a release has nothing to try.
    """
    idle = [c for c in _live(campaign) if not _flying(campaign, c)]
    guarded = _promotion_near(campaign)
    fresh = [] if guarded else [c for c in idle if _on_incumbent(campaign, c)]
    control = [c for c in idle if c.candidate.arm == "random"]
    for choice in (
        _recheck(campaign, fresh),
        _cold(campaign, fresh, now_s),
        _slow(campaign, fresh),
        _audit(fresh + control),
        _canary(campaign, idle),
        _fast(campaign, fresh, control),
    ):
        if choice is None:
            continue
        then = "cold" if choice.tier == "slow" and not choice.purpose else None
        if may_begin(campaign, choice.tier, now_s, then):
            return choice
    return None


def _live(campaign: Campaign) -> Iterable[CandidateState]:
    return (campaign.candidates[id] for id in campaign.live)


def _flying(campaign: Campaign, candidate: CandidateState) -> bool:
    return any(id in campaign.flight for id in candidate.trials.values())


def _on_incumbent(campaign: Campaign, candidate: CandidateState) -> bool:
    return candidate.candidate.arm == "search" and campaign.is_on_incumbent(candidate.candidate)


def _promotion_near(campaign: Campaign) -> bool:
    """A cold confirm is in flight, or won and not yet published."""
    if any(campaign.candidates[id].stage == "won_cold" for id in campaign.live):
        return True
    return any(campaign.trials[id].tier == "cold" for id in campaign.flight)


def _estimate(campaign: Campaign, candidate: CandidateState, tier: str) -> float:
    trial = campaign.trials.get(candidate.trials.get(tier, ""))
    return trial.estimate if trial is not None and trial.estimate is not None else 0.0


def _best(
    campaign: Campaign, candidates: Iterable[CandidateState], tier: str
) -> CandidateState | None:
    return max(
        candidates, key=lambda c: (_estimate(campaign, c, tier), -c.admitted_seq), default=None
    )


def _recheck(campaign: Campaign, fresh: list[CandidateState]) -> Choice | None:
    """The oldest suspicious win: it may be the largest gain there is, or none at all."""
    candidate = next((c for c in fresh if c.stage == "recheck"), None)
    tier = first_quarantined(campaign, candidate) if candidate else None
    return Choice(candidate.id, tier, RECHECK) if candidate and tier else None


def _cold(campaign: Campaign, fresh: list[CandidateState], now_s: float) -> Choice | None:
    best = _best(campaign, (c for c in fresh if c.stage == "won_slow"), "slow")
    if best is None:
        return None
    estimate = _estimate(campaign, best, "slow")
    better = (c for c in _live(campaign) if c.stage == "won_fast" and _on_incumbent(campaign, c))
    if any(_estimate(campaign, c, "fast") > estimate for c in better):
        return None  # its slow trial is short, and may save a cold one
    return Choice(best.id, "cold") if _cold_is_due(campaign, now_s) else None


def _cold_is_due(campaign: Campaign, now_s: float) -> bool:
    """Cold confirms are dear: wait until the short trials have had their share, have ended, or
    there is only time for one more."""
    waiting = any(
        c.stage in ("admitted", "ready") and c.candidate.arm == "search" for c in _live(campaign)
    )
    if not waiting or search_left_s(campaign, now_s) < 2.0 * expected_s(campaign, "cold"):
        return True
    spent = campaign.search_tiers
    cold_s = spent.get("cold", Spend()).device_s + expected_device_s(campaign, "cold")
    total_s = sum(s.device_s for tier, s in spent.items() if tier != "cold")
    return cold_s * (1.0 - COLD_SHARE) <= total_s * COLD_SHARE


def _slow(campaign: Campaign, fresh: list[CandidateState]) -> Choice | None:
    best = _best(campaign, (c for c in fresh if c.stage == "won_fast"), "fast")
    if best is None:
        return None
    rival = _best(campaign, (c for c in _live(campaign) if c.stage == "won_slow"), "slow")
    if rival is not None and _estimate(campaign, rival, "slow") >= _estimate(
        campaign, best, "fast"
    ):
        return None  # the rival's promotion would make this one stale
    return Choice(best.id, "slow")


def _audit(candidates: list[CandidateState]) -> Choice | None:
    due = next((c for c in candidates if c.stage == "audit"), None)
    return Choice(due.id, "slow", "audit") if due else None


def _canary(campaign: Campaign, idle: list[CandidateState]) -> Choice | None:
    """The oldest canary, a winner first, where its arm has had less than its share of seconds."""
    share = campaign.opening.policy.canary_share
    total_s = sum(arm_device_s(campaign, arm) for arm in ARMS)
    if arm_device_s(campaign, ARM) >= share * total_s:
        return None
    waiting = [c for c in idle if c.candidate.arm == ARM]
    stages: tuple[tuple[Stage, Tier], ...] = (("won_fast", "slow"), ("ready", "fast"))
    for stage, tier in stages:
        due = next((c for c in waiting if c.stage == stage), None)
        if due is not None:
            return Choice(due.id, tier)
    return None


def _fast(
    campaign: Campaign, fresh: list[CandidateState], control: list[CandidateState]
) -> Choice | None:
    search = [c for c in fresh if c.stage == "ready"]
    control = [c for c in control if c.stage == "ready"]
    if not search and not control:
        return None
    if control and _control_is_behind(campaign, bool(search)):
        return Choice(control[0].id, "fast")
    return Choice(_next_search(campaign, search).id, "fast") if search else None


def _next_search(campaign: Campaign, search: list[CandidateState]) -> CandidateState:
    """Winners of an older release first, best first; then the bandit's strategy, oldest first."""
    proven = [c for c in search if c.prior is not None and c.prior > 1.0]
    if proven:
        return max(proven, key=lambda c: (c.prior or 0.0, -c.admitted_seq))
    names = {c.candidate.strategy for c in search}
    name = bandit.choose(names, campaign.strategies, f"{campaign.id}:{campaign.grants}")
    return next(c for c in search if c.candidate.strategy == name)


def _control_is_behind(campaign: Campaign, search_waits: bool) -> bool:
    """Whether the arm `random` has had less than its share, expected spend in flight included.

    It never runs ahead by more than a trial, not even when nothing else waits: equal means equal.
    """
    share = campaign.opening.policy.control_share
    if share <= 0.0:
        return False
    if share >= 1.0:
        return True
    control_s = arm_device_s(campaign, "random") * (1.0 - share)
    search_s = arm_device_s(campaign, "search") * share
    slack_s = 0.0 if search_waits else expected_device_s(campaign, "fast") * share
    return control_s < search_s + slack_s


def arm_device_s(campaign: Campaign, arm: str) -> float:
    """Device seconds of the arm's search trials, expected ones of those in flight included."""
    flying = (campaign.trials[id] for id in campaign.flight)
    expected = sum(expected_device_s(campaign, t.tier) for t in flying if t.arm == arm)
    return campaign.arms.get(arm, Spend()).device_s + expected
