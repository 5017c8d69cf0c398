"""What a proposer needs to know of its campaigns: a fold of the ledger. Pure.

A candidate is open from the moment it is sent until the ledger says what became of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatchmethod

from proposer.strategies.base import Outcome, Tried
from protos import events as e
from protos.candidate import Candidate
from protos.messages import OpenCampaign
from protos.release import EngineFacts, Release


@dataclass
class Campaign:
    """One campaign. `turned_away` are strategies whose candidates it no longer takes."""

    opening: OpenCampaign
    facts: EngineFacts | None = None
    start: Release | None = None
    incumbent: Release | None = None
    running: bool = True
    candidates: dict[str, Candidate] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    judged: dict[str, Tried] = field(default_factory=dict)
    turned_away: set[str] = field(default_factory=set)

    @property
    def id(self) -> str:
        return self.opening.campaign

    def base(self, arm: str) -> Release | None:
        """The release that an arm builds on; None before there is one."""
        return self.incumbent if arm == "search" else self.start

    def waiting(self, strategy: str | None = None, arm: str | None = None) -> int:
        """Open candidates of a strategy, or of an arm."""
        chosen = (self.candidates[id] for id in self.open)
        return sum(
            (strategy is None or c.strategy == strategy) and (arm is None or c.arm == arm)
            for c in chosen
        )


class Fold:
    """All campaigns of the ledger. `follow` takes events in order and answers what was learnt."""

    def __init__(self) -> None:
        self.campaigns: dict[str, Campaign] = {}

    def sent(self, candidate: Candidate) -> None:
        """Count a candidate as open before the ledger shows it."""
        campaign = self.campaigns[candidate.campaign]
        campaign.candidates[candidate.id] = candidate
        campaign.open.add(candidate.id)

    @singledispatchmethod
    def follow(self, event: object) -> Outcome | None:
        """Take one event. Returns the outcome it is for a candidate, if it is one."""
        return None

    @follow.register
    def _(self, event: e.CampaignOpened) -> None:
        self.campaigns[event.opening.campaign] = Campaign(event.opening)

    @follow.register
    def _(self, event: e.CampaignReady) -> None:
        if campaign := self.campaigns.get(event.campaign):
            campaign.facts, campaign.start = event.facts, campaign.start or event.start
            campaign.incumbent = campaign.incumbent or event.start

    @follow.register(e.CampaignRefused)
    @follow.register(e.CampaignPaused)
    @follow.register(e.CampaignFinished)
    def _(self, event: e.CampaignRefused | e.CampaignPaused | e.CampaignFinished) -> None:
        if campaign := self.campaigns.get(event.campaign):
            campaign.running = False

    @follow.register
    def _(self, event: e.CampaignResumed) -> None:
        if campaign := self.campaigns.get(event.campaign):
            campaign.running = True
            campaign.turned_away.clear()

    @follow.register
    def _(self, event: e.ReleasePromoted) -> None:
        if campaign := self.campaigns.get(event.release.campaign):
            campaign.incumbent = event.release
            campaign.start = campaign.start or event.release
            for id in [i for i in campaign.open if campaign.candidates[i].arm == "search"]:
                # What waited on the old release is rebased or retired by the scheduler.
                campaign.open.discard(id)

    @follow.register
    def _(self, event: e.CandidateAdmitted) -> None:
        if campaign := self.campaigns.get(event.candidate.campaign):
            if event.candidate.id not in campaign.judged:
                campaign.open.add(event.candidate.id)
            campaign.candidates[event.candidate.id] = event.candidate

    @follow.register
    def _(self, event: e.CandidateRefused) -> Outcome | None:
        campaign, candidate = self.campaigns.get(event.candidate.campaign), event.candidate
        if campaign is None or candidate.id in campaign.judged:
            return None
        campaign.candidates.setdefault(candidate.id, candidate)
        if event.reason.startswith("a repeat"):
            campaign.open.discard(candidate.id)
            return None
        # It says why no other would be taken either: ask again when the campaign changes.
        campaign.turned_away.add(candidate.strategy)
        return _settle(
            campaign, candidate.id, Tried(candidate, "refused", None, event.reason), None
        )

    @follow.register
    def _(self, event: e.CandidateChecked) -> Outcome | None:
        campaign, id = self.campaigns.get(event.campaign), event.check.candidate
        if campaign is None or id not in campaign.candidates or event.check.ok:
            return None
        tried = Tried(campaign.candidates[id], "invalid", None, event.check.reason)
        return _settle(campaign, id, tried, None)

    @follow.register
    def _(self, event: e.CandidateRebased) -> None:
        if campaign := self.campaigns.get(event.campaign):
            campaign.open.discard(event.candidate)

    @follow.register
    def _(self, event: e.TrialEnded) -> Outcome | None:
        campaign, id = self.campaigns.get(event.campaign), event.verdict.candidate
        if campaign is None or id is None or id not in campaign.candidates:
            return None
        verdict = event.verdict
        ratio = verdict.interval.estimate if verdict.interval else None
        tried = Tried(campaign.candidates[id], verdict.word, ratio, verdict.reason)
        return _settle(campaign, id, tried, verdict.tier)


def _settle(campaign: Campaign, id: str, tried: Tried, tier: str | None) -> Outcome:
    campaign.open.discard(id)
    campaign.judged[id] = tried
    return Outcome(tried, tier)
