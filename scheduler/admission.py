"""Whether a candidate may enter a campaign. Pure; answers a reason to refuse, or None."""

from __future__ import annotations

from protos.canary import ARM
from protos.candidate import MAX_FILES, Candidate
from scheduler.budget import over_llm_budget, search_left_s
from scheduler.state import Campaign, State

ARMS = ("search", "random", ARM)
_CLASSES = ("bitwise", "equivalent", "quality")


def refusal(state: State, candidate: Candidate, now_s: float) -> str | None:
    """Why the candidate is refused, as one line; None admits it.

    A candidate on an older release is admitted: rebasing it is decided afterwards.
    """
    campaign = state.campaigns.get(candidate.campaign)
    if campaign is None:
        return f"no campaign {candidate.campaign}"
    return _closed(campaign, now_s) or _unfit(campaign, candidate) or _repeat(campaign, candidate)


def knows(state: State, candidate: Candidate) -> bool:
    """Whether the campaign has admitted this very change before."""
    campaign = state.campaigns.get(candidate.campaign)
    return campaign is not None and candidate.id in campaign.candidates


def _closed(campaign: Campaign, now_s: float) -> str | None:
    if campaign.state != "running":
        return f"campaign {campaign.id} is {campaign.state}"
    if campaign.closing or search_left_s(campaign, now_s) <= 0.0:
        return "the budget is spent: the campaign is taking its closing measurement"
    return None


def _repeat(campaign: Campaign, candidate: Candidate) -> str | None:
    known = campaign.candidates.get(candidate.id)
    if known is None:
        return None
    return f"a repeat of {known.id} by {known.candidate.strategy or known.candidate.proposer}"


def _unfit(campaign: Campaign, candidate: Candidate) -> str | None:
    policy = campaign.opening.policy
    known = candidate.arm == ARM  # a canary is nobody's proposal
    if policy.strategies and not known and candidate.strategy not in policy.strategies:
        return f"strategy {candidate.strategy!r} is none of {', '.join(policy.strategies)}"
    if candidate.arm not in ARMS:
        return f"arm {candidate.arm!r} is none of {', '.join(ARMS)}"
    if candidate.output_class not in _CLASSES:
        return f"unknown output class {candidate.output_class!r}"
    if not (candidate.files or candidate.knobs or candidate.builds):
        return "it changes nothing"
    if len(candidate.files) > MAX_FILES:
        return f"{len(candidate.files)} files are more than {MAX_FILES}"
    return _wrong_base(campaign, candidate) or over_llm_budget(campaign, candidate.cost)


def _wrong_base(campaign: Campaign, candidate: Candidate) -> str | None:
    if campaign.release(candidate.base) is None:
        return f"base {candidate.base} is no release of this campaign"
    if candidate.arm != "search" and candidate.base != campaign.release_ids[0]:
        return f"arm {candidate.arm} builds on the start release {campaign.release_ids[0]}"
    return None
