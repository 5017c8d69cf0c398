"""What is spent, what is left, and what may still be begun. Fails closed: when in doubt, no."""

from __future__ import annotations

from protos.candidate import Cost
from scheduler.plans import GUESS_S
from scheduler.state import Campaign

CLOSING_SHARE = 0.4  # of a small budget, the most that is kept back for the closing measurement

FINAL_PER_COLD = 4 / 3  # a closing trial makes eight starts, a confirm may stop after six


def wall_spent_s(campaign: Campaign, now_s: float) -> float:
    """Seconds the campaign has worked; the time in which no scheduler led it isn't billed."""
    if campaign.since_s is None:
        return campaign.spent_s
    return campaign.spent_s + max(0.0, now_s - campaign.since_s)


def wall_seen_s(campaign: Campaign) -> float:
    """The same up to the campaign's last event: all that a new leader can know of an old one."""
    return wall_spent_s(campaign, campaign.last_s)


def search_left_s(campaign: Campaign, now_s: float) -> float:
    """Wall seconds left before the closing measurement must begin (may be negative)."""
    return campaign.budget_s - wall_spent_s(campaign, now_s) - reserve_s(campaign)


def reserve_s(campaign: Campaign) -> float:
    """Wall seconds kept back for the closing trials: `policy.final_s`, or what this campaign's own
    cold trials say that they will take, but never more than CLOSING_SHARE of the budget."""
    needed_s = campaign.opening.policy.final_s
    if "cold" in campaign.tiers:
        each_s = FINAL_PER_COLD * expected_s(campaign, "cold")
        needed_s = max(needed_s, closing_trials(campaign) * each_s)
    return min(needed_s, CLOSING_SHARE * campaign.budget_s)


def closing_trials(campaign: Campaign) -> int:
    """How many closing trials the campaign would take if it ended now."""
    return (len(campaign.releases) > 1) + bool(campaign.looked_faster)


def expected_s(campaign: Campaign, tier: str) -> float:
    """Wall seconds that a trial of the tier takes, by this campaign's own record."""
    seen = campaign.tiers.get(tier)
    if seen is None or seen.ended == 0:
        return GUESS_S[tier]
    return max(seen.wall_s, seen.device_s) / seen.ended


def expected_device_s(campaign: Campaign, tier: str) -> float:
    """Device seconds that a trial of the tier takes, by this campaign's own record."""
    seen = campaign.tiers.get(tier)
    return seen.device_s / seen.ended if seen and seen.ended else GUESS_S[tier]


def committed_device_s(campaign: Campaign) -> float:
    """Device seconds spent, and those the trials in flight are expected to spend."""
    flying = (campaign.trials[id].tier for id in campaign.flight)
    return campaign.device_s + sum(expected_device_s(campaign, tier) for tier in flying)


def may_begin(campaign: Campaign, tier: str, now_s: float, then: str | None = None) -> bool:
    """Whether a search trial of the tier still fits both budgets, what is in flight included.

    `then` is the tier of the trial that it would be in vain without.
    """
    tiers = [tier] if then is None else [tier, then]
    flying_s = sum(expected_s(campaign, campaign.trials[id].tier) for id in campaign.flight)
    hosts = max(1, len(campaign.ready))
    needed_s = flying_s / hosts + sum(expected_s(campaign, t) for t in tiers)
    if needed_s > search_left_s(campaign, now_s):
        return False
    limit_s = campaign.opening.budget.device_s
    if limit_s is None:
        return True
    device_s = committed_device_s(campaign) + sum(expected_device_s(campaign, t) for t in tiers)
    return device_s + closing_device_s(campaign) <= limit_s


def closing_device_s(campaign: Campaign) -> float:
    """Device seconds to keep back for the closing trials."""
    return max(1, closing_trials(campaign)) * expected_device_s(campaign, "cold")


def spent_reason(campaign: Campaign, now_s: float) -> str | None:
    """Why no search trial may begin any more; None while the budget holds."""
    if search_left_s(campaign, now_s) <= 0.0:
        return "the wall-clock budget is spent"
    limit_s = campaign.opening.budget.device_s
    if limit_s is not None and not campaign.flight:
        needed_s = campaign.device_s + expected_device_s(campaign, "fast")
        if needed_s + closing_device_s(campaign) > limit_s:
            return "the device-second budget is spent"
    return None


def over_llm_budget(campaign: Campaign, cost: Cost) -> str | None:
    """Which language-model budget a further proposal of this cost finds spent, if any."""
    budget = campaign.opening.budget
    if budget.llm_tokens is not None and campaign.llm_tokens >= budget.llm_tokens:
        return f"the budget of {budget.llm_tokens} language-model tokens is spent"
    if budget.llm_usd is not None and campaign.llm_usd >= budget.llm_usd:
        return f"the budget of {budget.llm_usd} USD for language models is spent"
    return None
