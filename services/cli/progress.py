"""What a live view shows of a running campaign, from its record, signals and status. Pure."""

from collections import deque
from dataclasses import dataclass, field

from protos import events as e
from protos.messages import Activity, CampaignStatus
from protos.trial import Verdict
from services.cli import words
from services.ledger.base import Recorded
from services.report.record import FINAL, RANDOM_FINAL, CampaignRecord

RECENT = 6
CLOSING = {
    FINAL: "the release against the start",
    RANDOM_FINAL: "the best of the random arm against the start",
}


@dataclass(frozen=True)
class Judged:
    """One recent verdict as a row."""

    label: str
    tier: str
    word: str
    numbers: str


@dataclass
class Progress:
    """Everything a view may draw."""

    record: CampaignRecord
    engines: dict[str, Activity] = field(default_factory=dict)
    status: CampaignStatus | None = None
    recent: deque[Judged] = field(default_factory=lambda: deque(maxlen=RECENT))

    def apply(self, recorded: Recorded) -> None:
        """Fold a ledger event in."""
        self.record.apply(recorded)
        row = self.judged(recorded)
        if row is not None:
            self.recent.append(row)

    def judged(self, recorded: Recorded) -> Judged | None:
        """The row for an event that is a verdict of this campaign, else None."""
        event = recorded.event
        if isinstance(event, e.TrialEnded) and event.campaign == self.record.campaign:
            verdict = event.verdict
            numbers = words.interval(verdict.interval) if verdict.interval else verdict.reason
            return Judged(self._subject(verdict), verdict.tier, verdict.word, numbers)
        if isinstance(event, e.CandidateChecked) and event.campaign == self.record.campaign:
            check = event.check
            if not check.ok:
                return Judged(self.label(check.candidate), "check", "invalid", check.reason)
        return None

    def label(self, candidate: str | None) -> str:
        """A candidate's readable name; a trial without one measures a release."""
        if candidate is None:
            return "release"
        known = self.record.candidates.get(candidate)
        return (known.candidate.label if known else "") or candidate

    def _subject(self, verdict: Verdict) -> str:
        trial = self.record.trials.get(verdict.trial)
        purpose = trial.lease.purpose if trial else ""
        return CLOSING.get(purpose) or self.label(verdict.candidate)

    def phase(self) -> str:
        """What the campaign as a whole is doing."""
        if self.status is not None and self.status.state == "finishing":
            return "closing measurement: release against start"
        return {
            "unknown": "starting",
            "opening": "loading the model, starting engines",
            "running": "searching",
        }.get(self.record.state, self.record.state)

    def time_left(self, now_s: float) -> str:
        """How much of the wall budget is left."""
        if self.record.budget_s is None:
            return "unknown"
        left_s = self.record.budget_s - self.record.spent_s(now_s)
        if left_s < -1.0:
            return f"0 s (over by {words.duration(-left_s)}: what was begun is being finished)"
        return words.duration(left_s)

    def share_spent(self, now_s: float) -> float:
        """Share of the wall budget used, 0 to 1."""
        if not self.record.budget_s:
            return 0.0
        return min(1.0, self.record.spent_s(now_s) / self.record.budget_s)

    def best(self) -> str:
        """The best candidate so far, as one line; the gain that counts is measured at the end."""
        best = self.status.best if self.status else None
        if best is None:
            return "none yet"
        return f"{best.label or best.candidate}: {words.ratio(best.ratio)} ({best.tier} tier)"

    def doing(self) -> list[str]:
        """One line an engine host: what it does now."""
        return [f"{host}: {_activity(now)}" for host, now in sorted(self.engines.items())]

    def waiting(self) -> str:
        """How many candidates there are, and how many of them wait."""
        seen = len(self.record.candidates)
        if self.status is None:
            return f"{seen} seen"
        return f"{seen} seen, {self.status.waiting} waiting"


def _activity(now: Activity) -> str:
    text = now.doing
    if now.label:
        text += f" {now.label}"
    if now.tier:
        text += f" ({now.tier})"
    if now.pairs:
        text += f", pair {now.pair} of at most {now.pairs}"
    return text
