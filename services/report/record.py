"""One campaign as its ledger tells it: a fold, applied event by event.

The live view, `status`, `show` and the report all read this record and nothing else, so they can't
disagree. Unknown events are passed over.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from protos import events as e
from protos.candidate import Candidate, Check
from protos.messages import OpenCampaign
from protos.release import Release
from protos.trial import Lease, Verdict
from services.ledger.base import Recorded

FINAL = "final"  # the purpose of the trial that measures the last release against the start
RANDOM_FINAL = "random_final"  # the same for the best of the control arm


@dataclass
class TrialRecord:
    """One trial: its last lease, and its verdict while that counts."""

    lease: Lease
    granted_s: float
    epoch: int
    verdict: Verdict | None = None
    ended_s: float | None = None
    void_reason: str | None = None
    lost: list[str] = field(default_factory=list)


@dataclass
class CandidateRecord:
    """One candidate and everything that happened to it. Times are seconds since the epoch."""

    candidate: Candidate
    seen_s: float
    refused: str | None = None
    check: Check | None = None
    rebased: e.CandidateRebased | None = None
    trials: list[str] = field(default_factory=list)
    trace_ids: list[str] = field(default_factory=list)


@dataclass
class ReleaseRecord:
    """A release, the trials its promotion stands on, and when it was made."""

    release: Release
    trials: tuple[str, ...]
    at_s: float


@dataclass
class CampaignRecord:
    """One campaign. `state` is opening, running, paused, finished or refused (or unknown)."""

    campaign: str
    state: str = "unknown"
    reason: str = ""
    opening: OpenCampaign | None = None
    ready: e.CampaignReady | None = None
    opened_s: float | None = None
    last_s: float | None = None
    last_seq: int = 0
    wall_s: float | None = None
    device_s: float | None = None
    budget_s: float | None = None
    spent_before_s: float = 0.0
    leading_since_s: float | None = None
    candidates: dict[str, CandidateRecord] = field(default_factory=dict)
    trials: dict[str, TrialRecord] = field(default_factory=dict)
    releases: list[ReleaseRecord] = field(default_factory=list)
    rebuilds: list[e.EngineRebuilt] = field(default_factory=list)

    def apply(self, recorded: Recorded) -> None:
        """Fold one event in. Events of other campaigns change nothing."""
        if not self._mine(recorded.event):
            return
        self.last_seq, self.last_s = recorded.seq, recorded.time_s
        handler = _HANDLERS.get(type(recorded.event))
        if handler is not None:
            handler(self, recorded.event, recorded)

    def judged(self) -> list[TrialRecord]:
        """Trials with a verdict that counts, in the order they ended."""
        ended = [t for t in self.trials.values() if t.verdict is not None]
        return sorted(ended, key=lambda trial: trial.ended_s or 0.0)

    def verdict_counts(self) -> dict[str, int]:
        """Word to count, over trials; a candidate that failed its check is one `invalid`."""
        words = Counter[str](t.verdict.word for t in self.judged() if t.verdict is not None)
        failed = sum(1 for c in self.candidates.values() if c.check is not None and not c.check.ok)
        counts: dict[str, int] = dict(words)
        if failed:
            counts["invalid"] = counts.get("invalid", 0) + failed
        return counts

    def losses(self) -> list[str]:
        """The reason of every trial attempt that was lost; none is a verdict."""
        return [reason for trial in self.trials.values() for reason in trial.lost]

    def trial_counts(self) -> dict[str, int]:
        """Tier to how many trials of it ended in a verdict that counts."""
        return dict(Counter(trial.lease.tier for trial in self.judged()))

    def spent_s(self, now_s: float) -> float:
        """Wall seconds that the campaign has used, of the time somebody led it."""
        if self.leading_since_s is None:
            return self.wall_s if self.wall_s is not None else self.spent_before_s
        return self.spent_before_s + max(0.0, now_s - self.leading_since_s)

    def closing(self, purpose: str) -> TrialRecord | None:
        """The closing measurement against the start: FINAL or RANDOM_FINAL.

        It alone is where a printed gain comes from. None while it hasn't ended in a verdict.
        """
        for trial in reversed(self.judged()):
            if trial.lease.purpose == purpose:
                return trial
        return None

    def incumbent(self) -> Release | None:
        """The last release promoted, the start included."""
        return self.releases[-1].release if self.releases else None

    def release_of(self, release: str) -> Release | None:
        """A release of this campaign by id."""
        for record in self.releases:
            if record.release.id == release:
                return record.release
        return self.ready.start if self.ready and self.ready.start.id == release else None

    def _mine(self, event: object) -> bool:
        named = _campaign_of(event)
        return named == self.campaign if named is not None else self._rebuilds(event)

    def _rebuilds(self, event: object) -> bool:
        return isinstance(event, e.EngineRebuilt) and self.state != "unknown"


def fold(campaign: str, events: Iterable[Recorded]) -> CampaignRecord:
    """The record of a campaign from its events, in order."""
    record = CampaignRecord(campaign)
    for recorded in events:
        record.apply(recorded)
    return record


def _campaign_of(event: object) -> str | None:
    """The campaign that an event belongs to; None for those that name none."""
    match event:
        case e.CampaignOpened(opening=opening):
            return opening.campaign
        case e.CandidateAdmitted(candidate=candidate) | e.CandidateRefused(candidate=candidate):
            return candidate.campaign
        case e.TrialGranted(lease=lease):
            return lease.campaign
        case e.ReleasePromoted(release=release):
            return release.campaign
    named = getattr(event, "campaign", None)
    return named if isinstance(named, str) else None


def _opened(record: CampaignRecord, event: e.CampaignOpened, at: Recorded) -> None:
    record.opening, record.state = event.opening, "opening"
    record.opened_s = record.leading_since_s = at.time_s
    record.budget_s = event.opening.budget.wall_s


def _ready(record: CampaignRecord, event: e.CampaignReady, at: Recorded) -> None:
    record.ready, record.state = event, "running"
    if not record.releases:
        record.releases.append(ReleaseRecord(event.start, (), at.time_s))


def _refused(record: CampaignRecord, event: e.CampaignRefused, at: Recorded) -> None:
    record.spent_before_s = record.spent_s(at.time_s)
    record.state, record.reason, record.leading_since_s = "refused", event.reason, None


def _paused(record: CampaignRecord, event: e.CampaignPaused, at: Recorded) -> None:
    record.state, record.reason = "paused", event.reason
    record.wall_s = record.spent_before_s = event.wall_s
    record.leading_since_s = None


def _resumed(record: CampaignRecord, event: e.CampaignResumed, at: Recorded) -> None:
    record.state, record.reason = "running" if record.ready else "opening", ""
    record.spent_before_s, record.budget_s = event.wall_s, event.budget_s
    record.leading_since_s, record.wall_s = at.time_s, None


def _finished(record: CampaignRecord, event: e.CampaignFinished, at: Recorded) -> None:
    record.state, record.reason = "finished", event.reason
    record.wall_s, record.device_s = event.wall_s, event.device_s
    record.leading_since_s = None


def _admitted(record: CampaignRecord, event: e.CandidateAdmitted, at: Recorded) -> None:
    _note_trace(_candidate(record, event.candidate, at), at)


def _turned_away(record: CampaignRecord, event: e.CandidateRefused, at: Recorded) -> None:
    if event.candidate.id not in record.candidates:  # a repeat changes nothing for the first one
        known = _candidate(record, event.candidate, at)
        known.refused = event.reason
        _note_trace(known, at)


def _checked(record: CampaignRecord, event: e.CandidateChecked, at: Recorded) -> None:
    known = record.candidates.get(event.check.candidate)
    if known is not None:
        known.check = event.check
        _note_trace(known, at)


def _rebased(record: CampaignRecord, event: e.CandidateRebased, at: Recorded) -> None:
    known = record.candidates.get(event.candidate)
    if known is not None:
        known.rebased = event


def _granted(record: CampaignRecord, event: e.TrialGranted, at: Recorded) -> None:
    lease = event.lease
    known = record.trials.get(lease.trial)
    if known is None:
        record.trials[lease.trial] = TrialRecord(lease, at.time_s, at.seq)
    else:
        known.lease, known.granted_s, known.epoch = lease, at.time_s, at.seq
    candidate = record.candidates.get(lease.side_b.candidate or "")
    if candidate is not None:
        if lease.trial not in candidate.trials:
            candidate.trials.append(lease.trial)
        _note_trace(candidate, at)


def _ended(record: CampaignRecord, event: e.TrialEnded, at: Recorded) -> None:
    trial = record.trials.get(event.verdict.trial)
    if trial is not None:
        trial.verdict, trial.ended_s, trial.void_reason = event.verdict, at.time_s, None


def _lost(record: CampaignRecord, event: e.TrialLost, at: Recorded) -> None:
    if event.trial in record.trials:
        record.trials[event.trial].lost.append(event.reason)


def _voided(record: CampaignRecord, event: e.TrialVoided, at: Recorded) -> None:
    trial = record.trials.get(event.trial)
    if trial is not None:
        trial.verdict, trial.void_reason = None, event.reason


def _rebuilt(record: CampaignRecord, event: e.EngineRebuilt, at: Recorded) -> None:
    record.rebuilds.append(event)


def _promoted(record: CampaignRecord, event: e.ReleasePromoted, at: Recorded) -> None:
    if all(known.release.id != event.release.id for known in record.releases):
        record.releases.append(ReleaseRecord(event.release, event.trials, at.time_s))


def _candidate(record: CampaignRecord, candidate: Candidate, at: Recorded) -> CandidateRecord:
    return record.candidates.setdefault(candidate.id, CandidateRecord(candidate, at.time_s))


def _note_trace(known: CandidateRecord, at: Recorded) -> None:
    if at.trace_id and at.trace_id not in known.trace_ids:
        known.trace_ids.append(at.trace_id)


# One handler an event; each takes (record, event of its own type, where it was recorded).
_HANDLERS: dict[type, Callable[[CampaignRecord, Any, Recorded], None]] = {
    e.CampaignOpened: _opened,
    e.CampaignReady: _ready,
    e.CampaignRefused: _refused,
    e.CampaignPaused: _paused,
    e.CampaignResumed: _resumed,
    e.CampaignFinished: _finished,
    e.CandidateAdmitted: _admitted,
    e.CandidateRefused: _turned_away,
    e.CandidateChecked: _checked,
    e.CandidateRebased: _rebased,
    e.TrialGranted: _granted,
    e.TrialEnded: _ended,
    e.TrialLost: _lost,
    e.TrialVoided: _voided,
    e.EngineRebuilt: _rebuilt,
    e.ReleasePromoted: _promoted,
}
