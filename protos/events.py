"""The ledger's events: the truth. Every state is a fold of these. Each says who appends it.

Entities: campaign, candidate, trial, engine, release. An append expects the entity's last sequence.
"""

from __future__ import annotations

from protos.base import Value
from protos.candidate import Candidate, Check
from protos.messages import OpenCampaign
from protos.release import EngineFacts, Release
from protos.trial import Lease, Verdict


class CampaignOpened(Value, frozen=True, tag="campaign_opened"):
    """scheduler. The order as given."""

    opening: OpenCampaign


class CampaignReady(Value, frozen=True, tag="campaign_ready"):
    """engine host. The target is loaded and warm on `host`; `start` is the start release."""

    campaign: str
    host: str
    facts: EngineFacts
    start: Release
    wall_s: float


class CampaignRefused(Value, frozen=True, tag="campaign_refused"):
    """scheduler or engine host: the campaign can't run; one line that says what to do. Terminal."""

    campaign: str
    reason: str


class CampaignPaused(Value, frozen=True, tag="campaign_paused"):
    """scheduler. Stopped by a person or the end of the process; resumable. Spend so far."""

    campaign: str
    reason: str
    wall_s: float


class CampaignResumed(Value, frozen=True, tag="campaign_resumed"):
    """scheduler. Leads again after a restart or a pause: `wall_s` is spent, of `budget_s`."""

    campaign: str
    wall_s: float
    budget_s: float


class CampaignFinished(Value, frozen=True, tag="campaign_finished"):
    """scheduler. Budget spent or nothing left to try, closing measurements included. Terminal."""

    campaign: str
    reason: str
    wall_s: float
    device_s: float


class CandidateAdmitted(Value, frozen=True, tag="candidate_admitted"):
    """scheduler."""

    candidate: Candidate


class CandidateRefused(Value, frozen=True, tag="candidate_refused"):
    """scheduler. A repeat, a stale base that doesn't merge, or a spent budget. Terminal."""

    candidate: Candidate
    reason: str


class CandidateChecked(Value, frozen=True, tag="candidate_checked"):
    """evaluator. `check.ok` false is the verdict `invalid` without a trial."""

    campaign: str
    check: Check


class CandidateRebased(Value, frozen=True, tag="candidate_rebased"):
    """scheduler. Merged onto a newer release as candidate `onto`, or retired with a reason.
    Terminal."""

    campaign: str
    candidate: str
    onto: str | None
    reason: str = ""


class TrialGranted(Value, frozen=True, tag="trial_granted"):
    """scheduler. The sequence of this event is the fencing epoch."""

    lease: Lease


class TrialEnded(Value, frozen=True, tag="trial_ended"):
    """evaluator. Terminal but for `trial_voided`."""

    campaign: str
    epoch: int
    verdict: Verdict


class TrialLost(Value, frozen=True, tag="trial_lost"):
    """engine host; the scheduler when a lease ran out; the evaluator when the evidence doesn't keep
    to its own plan. Never a verdict; may be granted again."""

    campaign: str
    trial: str
    epoch: int
    reason: str


class TrialVoided(Value, frozen=True, tag="trial_voided"):
    """engine host or scheduler: the verdict no longer counts, and why. May be granted again."""

    campaign: str
    trial: str
    reason: str


class EngineUp(Value, frozen=True, tag="engine_up"):
    """engine host. A host is there and idle."""

    host: str
    device_class: str
    engines: tuple[str, ...]


class EngineRebuilt(Value, frozen=True, tag="engine_rebuilt"):
    """engine host. A zygote was (re)built for `release`, and why (start, promotion, doubt)."""

    host: str
    release: str
    reason: str
    wall_s: float


class EngineReproved(Value, frozen=True, tag="engine_reproved"):
    """engine host. Weights, tree digest and golden prompt are still as built (ok) or not."""

    host: str
    release: str
    ok: bool
    detail: str = ""


class ReleasePromoted(Value, frozen=True, tag="release_promoted"):
    """scheduler. The campaign's incumbent from now on. `trials` are the fast, slow and cold trials
    it stands on; never without a cold one (the start, number 0, excepted)."""

    release: Release
    trials: tuple[str, ...]


Event = (
    CampaignOpened
    | CampaignReady
    | CampaignRefused
    | CampaignPaused
    | CampaignResumed
    | CampaignFinished
    | CandidateAdmitted
    | CandidateRefused
    | CandidateChecked
    | CandidateRebased
    | TrialGranted
    | TrialEnded
    | TrialLost
    | TrialVoided
    | EngineUp
    | EngineRebuilt
    | EngineReproved
    | ReleasePromoted
)
