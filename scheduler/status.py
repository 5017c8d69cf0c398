"""What `ask_status` answers, from the fold."""

from __future__ import annotations

from protos.messages import CampaignStatus
from scheduler.budget import search_left_s, wall_spent_s
from scheduler.state import State


def status_of(state: State, id: str, now_s: float) -> CampaignStatus:
    """The campaign as it stands; state `unknown` for one that was never opened."""
    campaign = state.campaigns.get(id)
    if campaign is None:
        reason = state.turned_away.get(id)
        word = "unknown" if reason is None else "refused"
        return CampaignStatus(id, word, reason or "", last_seq=state.last_seq)
    word = campaign.state
    if word == "running" and (campaign.closing or search_left_s(campaign, now_s) <= 0.0):
        word = "finishing"
    waiting = sum(campaign.candidates[c].stage in ("admitted", "ready") for c in campaign.live)
    return CampaignStatus(
        campaign=id,
        state=word,
        reason=campaign.reason,
        wall_s=wall_spent_s(campaign, now_s),
        budget_s=campaign.budget_s,
        device_s=campaign.device_s,
        verdicts={name: count for name, count in campaign.verdicts.items() if count},
        trials={tier: spend.ended for tier, spend in campaign.tiers.items()},
        candidates=len(campaign.candidates),
        waiting=waiting,
        releases=len(campaign.releases),
        incumbent=campaign.release_ids[-1] if campaign.release_ids else None,
        best=campaign.best,
        last_seq=state.last_seq,
    )
