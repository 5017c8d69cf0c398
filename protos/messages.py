"""Everything a room can be told: commands, asks, and signals, with who sends and who acts.

Every command ends in exactly one event (named in its docstring), giving up included.
"""

from __future__ import annotations

from protos.base import Value
from protos.candidate import Candidate, Scalar
from protos.release import Release
from protos.target import Budget, Objective, Target, Workload
from protos.trial import Lease


class Policy(Value, frozen=True, tag="policy"):
    """How a campaign decides; part of its opening, so that it is on record.

    `control_share`: share of search device-seconds given to the arm `random` (0.5: equal budget).
    `audit_slow_share`: share of correct candidates that get a slow trial whatever the fast tier
    said. `strategies`: which proposers may submit (empty: all). `promote`: false measures only.
    `canary_share`: share of device seconds for candidates whose verdict is known (0: none).
    `force_rung`: every trial on this rung (`cold`: the cold-process control).
    `final_s`: wall seconds kept back for the closing release-against-start measurement.
    """

    control_share: float = 0.5
    canary_share: float = 0.05
    audit_slow_share: float = 0.0
    strategies: tuple[str, ...] = ()
    promote: bool = True
    force_rung: str | None = None
    final_s: float = 60.0
    alpha_campaign: float = 0.05


class OpenCampaign(Value, frozen=True, tag="open_campaign"):
    """Command. A door -> scheduler. Ends in `campaign_opened` or `campaign_refused`."""

    campaign: str
    target: Target
    workload: Workload
    objective: Objective
    budget: Budget
    policy: Policy = Policy()


class StopCampaign(Value, frozen=True, tag="stop_campaign"):
    """Command. A door -> scheduler. Ends in `campaign_paused` (resumable)."""

    campaign: str
    reason: str


class ResumeCampaign(Value, frozen=True, tag="resume_campaign"):
    """Command. A door -> scheduler. Ends in `campaign_resumed`; `extra` adds to the budget."""

    campaign: str
    extra_wall_s: float = 0.0


class SubmitCandidate(Value, frozen=True, tag="submit_candidate"):
    """Command. A proposer or an outside agent -> scheduler. Ends in `candidate_admitted` or
    `candidate_refused`."""

    candidate: Candidate


class PrepareTarget(Value, frozen=True, tag="prepare_target"):
    """Command. scheduler -> engine host. Load the model, start the engines of the start release.
    Ends in `campaign_ready` or `campaign_refused`."""

    campaign: str
    target: Target
    workload: Workload


class RunTrial(Value, frozen=True, tag="run_trial"):
    """Command. scheduler -> engine host (key: host id). The host runs the lease and sends
    `judge_trial`, so that it ends in `trial_ended`; or ends it itself in `trial_lost`."""

    lease: Lease


class CheckCandidate(Value, frozen=True, tag="check_candidate"):
    """Command. scheduler -> evaluator. Check without running, build native code.
    `release` is the base. Ends in `candidate_checked`."""

    candidate: Candidate
    release: Release
    space: str


class JudgeTrial(Value, frozen=True, tag="judge_trial"):
    """Command. engine host -> evaluator, with the evidence's blob digest. Ends in `trial_ended`."""

    trial: str
    epoch: int
    evidence: str


Command = (
    OpenCampaign
    | StopCampaign
    | ResumeCampaign
    | SubmitCandidate
    | PrepareTarget
    | RunTrial
    | CheckCandidate
    | JudgeTrial
)


class CommitSeed(Value, frozen=True, tag="commit_seed"):
    """Ask. engine host -> evaluator, before the patch is loaded. Answer: SeedCommitment."""

    trial: str
    epoch: int


class SeedCommitment(Value, frozen=True, tag="seed_commitment"):
    """SHA-256 hex of the seed that will be revealed for (trial, epoch)."""

    trial: str
    commitment: str


class RevealScript(Value, frozen=True, tag="reveal_script"):
    """Ask. engine host -> evaluator, once the trial is ready (patch loaded, prepare done).
    `tokenizer` is the target's tokenizer blob. Answer: ScriptRevealed."""

    lease: Lease
    tokenizer: str | None
    max_context: int


class ScriptRevealed(Value, frozen=True, tag="script_revealed"):
    """The blob digest of the Script (seed and requests)."""

    trial: str
    script: str


class AskStatus(Value, frozen=True, tag="ask_status"):
    """Ask. A door -> scheduler. Answer: CampaignStatus (state `unknown` if there is none)."""

    campaign: str


class BestSoFar(Value, frozen=True, tag="best_so_far"):
    """The best judged candidate at a tier, for a live view only; never the printed gain."""

    candidate: str
    label: str
    tier: str
    ratio: float


class CampaignStatus(Value, frozen=True, tag="campaign_status"):
    """The scheduler's fold of one campaign, for a live view."""

    campaign: str
    state: str  # unknown | opening | running | finishing | paused | finished | refused
    reason: str = ""
    wall_s: float = 0.0
    budget_s: float = 0.0
    device_s: float = 0.0
    verdicts: dict[str, int] = {}
    trials: dict[str, int] = {}
    candidates: int = 0
    waiting: int = 0
    releases: int = 0
    incumbent: str | None = None
    best: BestSoFar | None = None
    last_seq: int = 0


Ask = CommitSeed | RevealScript | AskStatus
Answer = SeedCommitment | ScriptRevealed | CampaignStatus


class Activity(Value, frozen=True, tag="activity"):
    """Signal. engine host -> whoever watches: what this host does now."""

    host: str
    doing: str
    trial: str | None = None
    candidate: str | None = None
    label: str = ""
    tier: str | None = None
    pair: int = 0
    pairs: int = 0


class Heartbeat(Value, frozen=True, tag="heartbeat"):
    """Signal. Every room, every few seconds: alive, and its resident memory."""

    room: str
    instance: str
    resident_bytes: int
    details: dict[str, Scalar] = {}


Signal = Activity | Heartbeat
