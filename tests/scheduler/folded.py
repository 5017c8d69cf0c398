"""Builds a state by folding events one after the other, as the ledger would give them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from protos import events as e
from protos.candidate import Candidate, Check
from protos.messages import OpenCampaign
from protos.trial import Interval, Tier, Verdict, Word
from scheduler.fold import apply
from scheduler.leases import search_lease
from scheduler.promotion import next_release
from scheduler.state import Campaign, State, TrialState
from tests.scheduler.simulated_rooms import CAMPAIGN, FACTS, START, opening


@dataclass
class Folded:
    """A running campaign on one ready host; every call writes one event a second later."""

    order: OpenCampaign = field(default_factory=opening)
    state: State = field(default_factory=State)
    log: list[tuple[int, float, e.Event]] = field(default_factory=list)
    now_s: float = 1000.0

    def __post_init__(self) -> None:
        self.add(e.EngineUp("host0", "cpu", ("fake",)))
        self.add(e.CampaignOpened(self.order))
        self.add(e.CampaignReady(CAMPAIGN, "host0", FACTS, START, 1.0))
        self.add(e.ReleasePromoted(START, ()))

    @property
    def campaign(self) -> Campaign:
        return self.state.campaigns[CAMPAIGN]

    def add(self, event: e.Event, after_s: float = 1.0) -> int:
        self.now_s += after_s
        seq = self.state.last_seq + 1
        self.log.append((seq, self.now_s, event))
        apply(self.state, seq, self.now_s, event)
        return seq

    def admit(self, candidate: Candidate, ok: bool = True) -> Candidate:
        self.add(e.CandidateAdmitted(candidate), 0.0)
        check = Check(candidate.id, ok, "" if ok else "it doesn't parse", libraries={})
        self.add(e.CandidateChecked(CAMPAIGN, check), 0.0)
        return candidate

    def grant(self, candidate: Candidate, tier: Tier, purpose: str = "") -> TrialState:
        entry = self.campaign.candidates[candidate.id]
        lease = search_lease(self.campaign, entry, tier, purpose, "host0")
        self.add(e.TrialGranted(lease), 0.0)
        return self.campaign.trials[lease.trial]

    def judge(
        self,
        candidate: Candidate,
        tier: Tier,
        word: Word = "faster",
        gain: float = 0.1,
        device_s: float = 1.0,
        output_class: str | None = "equivalent",
    ) -> TrialState:
        trial = self.grant(candidate, tier)
        ratio = math.exp(gain)
        interval = Interval("output_tok_s", ratio, ratio * 0.97, ratio * 1.03, 8)
        verdict = Verdict(
            trial.id,
            candidate.id,
            tier,
            word,
            "",
            "0" * 64,
            interval,
            output_class,
            metrics_b={"ttft_ms_p99": 200.0},
            device_s=device_s,
        )
        self.add(e.TrialEnded(CAMPAIGN, trial.epoch, verdict))
        return self.campaign.trials[trial.id]

    def promote(self, candidate: Candidate) -> None:
        """Win all three tiers and be published."""
        tiers: tuple[Tier, ...] = ("fast", "slow", "cold")
        for tier in tiers:
            self.judge(candidate, tier)
        release = next_release(self.campaign, self.campaign.candidates[candidate.id])
        self.add(e.ReleasePromoted(release, release.evidence))

    def stage(self, candidate: Candidate) -> str:
        return self.campaign.candidates[candidate.id].stage
