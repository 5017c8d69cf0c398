"""The fold: one event at a time into the state. No I/O, no clock, no settings.

The fold trusts the ledger's order, and nobody's word for more than their event may say: a result
of an old epoch, a second ending or a promotion that doesn't stand on the incumbent changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protos import events as e
from protos.candidate import Candidate
from scheduler.fold_trials import campaign_at, count, ended, granted, lost, restage, voided
from scheduler.state import (
    Campaign,
    CandidateState,
    Host,
    State,
    over,
)


def apply(state: State, seq: int, time_s: float, event: object) -> None:
    """Fold the event of sequence `seq` in. Events already folded in are passed over."""
    if seq <= state.last_seq:
        return
    state.last_seq, state.last_s = seq, max(state.last_s, time_s)
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(state, seq, time_s, event)


def _opened(state: State, seq: int, time_s: float, event: e.CampaignOpened) -> None:
    opening = event.opening
    if opening.campaign in state.campaigns:
        state.ignored += 1
        return
    state.campaigns[opening.campaign] = Campaign(
        id=opening.campaign,
        opening=opening,
        seq=seq,
        state="opening",
        budget_s=opening.budget.wall_s,
        since_s=time_s,
        last_s=time_s,
        active_s=time_s,
    )


def _ready(state: State, seq: int, time_s: float, event: e.CampaignReady) -> None:
    campaign = campaign_at(state, event.campaign, time_s)
    if campaign is None:
        return
    campaign.seq = seq
    if campaign.releases and campaign.release_ids[0] != event.start.id:
        state.ignored += 1  # a host with another start tree can't serve this campaign
        return
    if not campaign.releases:
        campaign.add_release(event.start)
    campaign.facts = event.facts
    campaign.active_s = time_s
    if campaign.state == "opening":
        campaign.state = "running"
    for other in state.campaigns.values():
        other.ready.pop(event.host, None)
    campaign.ready[event.host] = seq
    host = state.hosts.get(event.host)
    if host is not None:
        host.campaign, host.expired = event.campaign, 0


def _refused(state: State, seq: int, time_s: float, event: e.CampaignRefused) -> None:
    campaign = campaign_at(state, event.campaign, time_s)
    if campaign is None:
        state.turned_away[event.campaign] = event.reason
    else:
        campaign.seq = seq
        _halt(campaign, "refused", event.reason, _elapsed_s(campaign, time_s))


def _paused(state: State, seq: int, time_s: float, event: e.CampaignPaused) -> None:
    campaign = campaign_at(state, event.campaign, time_s)
    if campaign is not None:
        campaign.seq = seq
        _halt(campaign, "paused", event.reason, event.wall_s)


def _finished(state: State, seq: int, time_s: float, event: e.CampaignFinished) -> None:
    campaign = campaign_at(state, event.campaign, time_s)
    if campaign is not None:
        campaign.seq = seq
        _halt(campaign, "finished", event.reason, event.wall_s)


def _resumed(state: State, seq: int, time_s: float, event: e.CampaignResumed) -> None:
    campaign = campaign_at(state, event.campaign, time_s)
    if campaign is None or over(campaign):
        state.ignored += 1
        return
    campaign.seq = seq
    campaign.state = "running" if campaign.releases else "opening"
    campaign.reason, campaign.closing = "", False
    campaign.spent_s, campaign.budget_s = event.wall_s, event.budget_s
    campaign.since_s = campaign.active_s = time_s
    for host in state.hosts.values():
        if host.queue and host.queue[0] in campaign.flight:
            host.head_since_s = time_s  # nobody watched the lease in between


def _halt(campaign: Campaign, word: str, reason: str, wall_s: float) -> None:
    campaign.state, campaign.reason = word, reason
    campaign.spent_s, campaign.since_s = wall_s, None


def _elapsed_s(campaign: Campaign, time_s: float) -> float:
    running_s = 0.0 if campaign.since_s is None else max(0.0, time_s - campaign.since_s)
    return campaign.spent_s + running_s


def _admitted(state: State, seq: int, time_s: float, event: e.CandidateAdmitted) -> None:
    candidate = event.candidate
    campaign = campaign_at(state, candidate.campaign, time_s)
    if campaign is None or candidate.id in campaign.candidates:
        state.ignored += 1
        return
    entry = CandidateState(candidate=candidate, id=candidate.id, seq=seq, admitted_seq=seq)
    campaign.candidates[entry.id] = entry
    campaign.live[entry.id] = None
    campaign.active_s = time_s
    _bill(campaign, candidate)


def _candidate_refused(state: State, seq: int, time_s: float, event: e.CandidateRefused) -> None:
    campaign = campaign_at(state, event.candidate.campaign, time_s)
    if campaign is None:
        return
    campaign.refused += 1
    _bill(campaign, event.candidate)
    known = campaign.candidates.get(event.candidate.id)
    if known is not None:  # a repeat: the first submission stands
        known.seq = seq


def _bill(campaign: Campaign, candidate: Candidate) -> None:
    campaign.llm_tokens += candidate.cost.llm_tokens
    campaign.llm_usd += candidate.cost.llm_usd


def _checked(state: State, seq: int, time_s: float, event: e.CandidateChecked) -> None:
    campaign = campaign_at(state, event.campaign, time_s)
    entry = campaign.candidates.get(event.check.candidate) if campaign else None
    if campaign is None or entry is None:
        state.ignored += 1
        return
    entry.seq = seq
    if entry.check is not None:
        state.ignored += 1
        return
    entry.check = event.check
    campaign.active_s = time_s
    if not event.check.ok:
        count(campaign.verdicts, "invalid", 1)
    restage(campaign, entry)


def _rebased(state: State, seq: int, time_s: float, event: e.CandidateRebased) -> None:
    campaign = campaign_at(state, event.campaign, time_s)
    entry = campaign.candidates.get(event.candidate) if campaign else None
    if campaign is None or entry is None:
        state.ignored += 1
        return
    entry.seq, entry.stage = seq, "rebased"
    entry.onto, entry.reason = event.onto, event.reason
    campaign.live.pop(entry.id, None)
    heir = campaign.candidates.get(event.onto or "")
    fast = campaign.trials.get(entry.trials.get("fast", ""))
    prior = fast.estimate if fast is not None else entry.prior
    if heir is not None and prior is not None:
        heir.prior = max(prior, heir.prior or 0.0)


def _promoted(state: State, seq: int, time_s: float, event: e.ReleasePromoted) -> None:
    release = event.release
    campaign = campaign_at(state, release.campaign, time_s)
    incumbent = campaign.incumbent if campaign else None
    if campaign is None or incumbent is None:
        state.ignored += 1
        return
    if release.number == 0:
        campaign.announced = True
        return
    if release.parent != campaign.release_ids[-1] or release.number != incumbent.number + 1:
        state.ignored += 1
        return
    campaign.add_release(release)
    campaign.best = None
    campaign.active_s = time_s
    entry = campaign.candidates.get(release.candidate or "")
    if entry is not None:
        entry.stage, entry.reason = "promoted", f"release {release.number}"
        campaign.live.pop(entry.id, None)
    for id in tuple(campaign.live):
        restage(campaign, campaign.candidates[id])


def _engine_up(state: State, seq: int, time_s: float, event: e.EngineUp) -> None:
    known = state.hosts.get(event.host)
    queue = known.queue if known else []
    state.hosts[event.host] = Host(
        event.host, event.device_class, event.engines, seq, queue=queue, head_since_s=time_s
    )
    for campaign in state.campaigns.values():
        campaign.ready.pop(event.host, None)


def _engine_spoke(state: State, seq: int, time_s: float, event: Any) -> None:
    host = state.hosts.get(event.host)
    if host is not None:
        host.expired = 0


_HANDLERS: dict[type, Callable[[State, int, float, Any], None]] = {
    e.CampaignOpened: _opened,
    e.CampaignReady: _ready,
    e.CampaignRefused: _refused,
    e.CampaignPaused: _paused,
    e.CampaignResumed: _resumed,
    e.CampaignFinished: _finished,
    e.CandidateAdmitted: _admitted,
    e.CandidateRefused: _candidate_refused,
    e.CandidateChecked: _checked,
    e.CandidateRebased: _rebased,
    e.TrialGranted: granted,
    e.TrialEnded: ended,
    e.TrialLost: lost,
    e.TrialVoided: voided,
    e.EngineUp: _engine_up,
    e.EngineRebuilt: _engine_spoke,
    e.EngineReproved: _engine_spoke,
    e.ReleasePromoted: _promoted,
}
