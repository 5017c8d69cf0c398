"""What the ledger's events amount to, as plain mutable structs that only `fold.py` writes.

Times are the ledger's (`time_s`, seconds of the epoch); spend is in seconds. Nothing here is known
that a replay of the ledger wouldn't give again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from protos.candidate import Candidate, Check
from protos.messages import BestSoFar, OpenCampaign
from protos.release import EngineFacts, Release
from protos.trial import Lease

Stage = Literal[
    "admitted",  # waits for its check
    "ready",  # checked; waits for, or is in, its fast trial
    "won_fast",  # waits for its slow trial
    "won_slow",  # waits for its cold confirm
    "won_cold",  # waits for its promotion
    "recheck",  # won suspiciously; waits for an independent trial of the same tier
    "audit",  # lost or drew, and was drawn for a slow trial all the same
    "promoted",
    "done",  # judged, with nothing more to try
    "invalid",
    "refused",
    "parked",  # its engine was lost too often
    "rebased",
]
LIVE: tuple[Stage, ...] = (
    "admitted",
    "ready",
    "won_fast",
    "won_slow",
    "won_cold",
    "recheck",
    "audit",
)
MAX_ATTEMPTS = 3


class TrialState(msgspec.Struct):
    """One trial through all its attempts. `lease` is kept only while it is granted."""

    id: str
    candidate: str | None
    arm: str
    tier: str
    purpose: str
    side_a: str
    host: str
    attempt: int
    epoch: int
    seq: int
    status: Literal["granted", "ended", "lost", "voided"] = "granted"
    lease: Lease | None = None
    word: str | None = None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    quarantined: str | None = None
    output_class: str | None = None
    metrics_b: dict[str, float] = {}
    reason: str = ""
    least_gain: float = 0.0  # log-ratio under which this fast trial is no pass (services/tiers.py)


class CandidateState(msgspec.Struct):
    """One candidate. `trials` maps a tier, `trial_key` of a recheck, or a closing purpose to the
    trial's id.

    `prior` is the fast estimate on the release it was rebased from.
    """

    candidate: Candidate
    id: str
    seq: int
    admitted_seq: int
    stage: Stage = "admitted"
    reason: str = ""
    check: Check | None = None
    trials: dict[str, str] = {}
    onto: str | None = None
    prior: float | None = None


def trial_key(tier: str, purpose: str) -> str:
    """Under what a candidate keeps a trial: its tier, but for a second look at one."""
    return f"{tier} {purpose}" if purpose == "recheck" else tier


class Spend(msgspec.Struct):
    """Device seconds and trials of one arm, strategy or tier."""

    device_s: float = 0.0
    wall_s: float = 0.0
    ended: int = 0
    won: int = 0


class Campaign(msgspec.Struct):
    """One campaign's fold."""

    id: str
    opening: OpenCampaign
    seq: int
    state: str
    budget_s: float
    since_s: float | None  # when the present stretch of work began; null while none runs
    last_s: float
    spent_s: float = 0.0  # wall seconds of earlier stretches
    reason: str = ""
    device_s: float = 0.0
    facts: EngineFacts | None = None
    releases: list[Release] = []
    release_ids: list[str] = []  # theirs, in the same order: a release's id is a digest
    announced: bool = False  # the start release stands in the ledger as number 0
    ready: dict[str, int] = {}  # host -> sequence of its campaign_ready
    candidates: dict[str, CandidateState] = {}
    live: dict[str, None] = {}  # ids of candidates that may still get a trial, in order of arrival
    trials: dict[str, TrialState] = {}
    flight: dict[str, None] = {}  # ids of granted trials that haven't ended, in order of grant
    arms: dict[str, Spend] = {}
    strategies: dict[str, Spend] = {}
    tiers: dict[str, Spend] = {}
    search_tiers: dict[str, Spend] = {}
    verdicts: dict[str, int] = {}
    fast_then_slow: dict[str, tuple[float, bool]] = {}  # fast winners: their gain, slow won or not
    looked_faster: dict[str, None] = {}  # arm random: correct, and faster than the start so far
    llm_tokens: int = 0
    llm_usd: float = 0.0
    grants: int = 0
    closing: bool = False
    active_s: float = 0.0  # last time that something to try arrived or a trial ended
    refused: int = 0
    best: BestSoFar | None = None

    @property
    def start(self) -> Release | None:
        return self.releases[0] if self.releases else None

    @property
    def incumbent(self) -> Release | None:
        return self.releases[-1] if self.releases else None

    def release(self, id: str) -> Release | None:
        """The campaign's release of that id, if it ever had it."""
        for position in range(len(self.release_ids) - 1, -1, -1):
            if self.release_ids[position] == id:
                return self.releases[position]
        return None

    def is_on_incumbent(self, candidate: Candidate) -> bool:
        return bool(self.release_ids) and candidate.base == self.release_ids[-1]

    def add_release(self, release: Release) -> None:
        self.releases.append(release)
        self.release_ids.append(release.id)


class Host(msgspec.Struct):
    """One engine host and the leases it holds, first granted first.

    `head_since_s`: since when the first of them can have been running. `expired`: leases that ran
    out in a row, without any sign of the host.
    """

    id: str
    device_class: str
    engines: tuple[str, ...]
    up_seq: int
    campaign: str | None = None
    queue: list[str] = []
    head_since_s: float = 0.0
    expired: int = 0


class State(msgspec.Struct):
    """The fold of the whole ledger up to `last_seq`."""

    last_seq: int = 0
    last_s: float = 0.0
    campaigns: dict[str, Campaign] = {}
    hosts: dict[str, Host] = {}
    turned_away: dict[str, str] = {}  # campaigns refused before they opened, and why
    ignored: int = 0  # events that broke a rule: late results, second endings


def running(campaign: Campaign) -> bool:
    return campaign.state == "running"


def over(campaign: Campaign) -> bool:
    return campaign.state in ("finished", "refused")
