"""The fold of trial events. See fold.py, which dispatches to it."""

from __future__ import annotations

import math

from protos import events as e
from protos.canary import ARM
from protos.messages import BestSoFar
from scheduler.promotion import CORRECT, acceptable, shortfall
from scheduler.stages import stage_of
from scheduler.state import (
    LIVE,
    Campaign,
    CandidateState,
    Spend,
    State,
    TrialState,
    trial_key,
)
from services.tiers import least_gain

TIERS = ("fast", "slow", "cold")
CLOSING = ("final", "random_final")


def campaign_at(state: State, id: str, time_s: float) -> Campaign | None:
    campaign = state.campaigns.get(id)
    if campaign is not None:
        campaign.last_s = max(campaign.last_s, time_s)
    return campaign


def count(counts: dict[str, int], key: str, by: int) -> None:
    counts[key] = counts.get(key, 0) + by


def _show(campaign: Campaign, entry: CandidateState, trial: TrialState) -> None:
    """Keep the best of the highest tier for the live view."""
    best = campaign.best
    if trial.estimate is None or not campaign.is_on_incumbent(entry.candidate):
        return
    rank = TIERS.index(trial.tier), trial.estimate
    if best is None or rank > (TIERS.index(best.tier), best.ratio):
        campaign.best = BestSoFar(entry.id, entry.candidate.label, trial.tier, trial.estimate)


def restage(campaign: Campaign, entry: CandidateState) -> None:
    entry.stage, entry.reason = stage_of(campaign, entry)
    if entry.stage in LIVE:
        campaign.live.setdefault(entry.id, None)
    else:
        campaign.live.pop(entry.id, None)


def granted(state: State, seq: int, time_s: float, event: e.TrialGranted) -> None:
    lease = event.lease
    campaign, host = campaign_at(state, lease.campaign, time_s), state.hosts.get(lease.host)
    if campaign is None or host is None:
        state.ignored += 1
        return
    known = campaign.trials.get(lease.trial)
    if known is not None and known.status in ("granted", "ended"):
        known.seq = seq
        state.ignored += 1
        return
    entry = campaign.candidates.get(lease.side_b.candidate or "")
    campaign.trials[lease.trial] = TrialState(
        id=lease.trial,
        candidate=lease.side_b.candidate,
        arm=entry.candidate.arm if entry else "",
        tier=lease.tier,
        purpose=lease.purpose,
        side_a=lease.side_a.release,
        host=lease.host,
        attempt=lease.attempt,
        epoch=seq,
        seq=seq,
        lease=lease,
    )
    campaign.flight[lease.trial] = None
    campaign.grants += 1
    campaign.closing = campaign.closing or lease.purpose in CLOSING
    if not host.queue:
        host.head_since_s = time_s
    host.queue.append(lease.trial)
    if entry is not None:
        closing = lease.purpose in CLOSING
        key = lease.purpose if closing else trial_key(lease.tier, lease.purpose)
        entry.trials[key] = lease.trial


def ended(state: State, seq: int, time_s: float, event: e.TrialEnded) -> None:
    verdict = event.verdict
    found = _in_flight(state, event.campaign, verdict.trial, event.epoch, seq, time_s)
    if found is None:
        return
    campaign, trial = found
    trial.status, trial.word = "ended", verdict.word
    if verdict.interval is not None:
        interval = verdict.interval
        trial.estimate, trial.low, trial.high = interval.estimate, interval.low, interval.high
    trial.quarantined = verdict.quarantined
    trial.output_class, trial.metrics_b = verdict.output_class, verdict.metrics_b
    trial.reason = verdict.reason
    wall_s = _off_queue(state, trial, time_s)
    host = state.hosts.get(trial.host)
    if host is not None:
        host.expired = 0
    count(campaign.verdicts, verdict.word, 1)
    _spend(campaign, trial, verdict.device_s, wall_s)
    _note_tiers(campaign, trial)
    _after(campaign, trial, time_s)


def _note_tiers(campaign: Campaign, trial: TrialState) -> None:
    """What this campaign's slow trials said of fast winners sets the next fast trials' pass."""
    min_effect = campaign.opening.objective.min_effect
    if trial.tier == "fast":
        trial.least_gain = least_gain(campaign.fast_then_slow.values(), min_effect)
    entry = campaign.candidates.get(trial.candidate or "")
    if trial.tier != "slow" or entry is None or trial.word not in CORRECT:
        return
    if entry.candidate.arm == ARM:  # how a canary fares was known
        return
    fast = campaign.trials.get(entry.trials.get("fast", ""))
    if fast is not None and fast.word == "faster" and fast.estimate is not None:
        won = shortfall(trial, campaign.opening.objective) is None
        campaign.fast_then_slow[entry.id] = (math.log(fast.estimate), won)


def lost(state: State, seq: int, time_s: float, event: e.TrialLost) -> None:
    found = _in_flight(state, event.campaign, event.trial, event.epoch, seq, time_s)
    if found is None:
        return
    campaign, trial = found
    trial.status, trial.reason = "lost", event.reason
    limit_s = trial.lease.expires_s if trial.lease else 0.0
    wall_s = _off_queue(state, trial, time_s)
    host = state.hosts.get(trial.host)
    if host is not None:
        host.expired = host.expired + 1 if wall_s >= limit_s else 0
    campaign.device_s += min(wall_s, limit_s)  # unseen, so billed in full
    _after(campaign, trial, time_s)


def voided(state: State, seq: int, time_s: float, event: e.TrialVoided) -> None:
    campaign = campaign_at(state, event.campaign, time_s)
    trial = campaign.trials.get(event.trial) if campaign else None
    if campaign is None or trial is None:
        state.ignored += 1
        return
    trial.seq = seq
    if trial.status != "ended":
        state.ignored += 1
        return
    count(campaign.verdicts, trial.word or "", -1)
    trial.status, trial.reason = "voided", event.reason
    trial.word = trial.estimate = trial.low = trial.high = trial.quarantined = None
    campaign.fast_then_slow.pop(trial.candidate or "", None)
    _after(campaign, trial, time_s)


def _in_flight(
    state: State, campaign_id: str, trial_id: str, epoch: int, seq: int, time_s: float
) -> tuple[Campaign, TrialState] | None:
    """The trial that an ending ends, taken out of flight; None for the ending of a late holder."""
    campaign = campaign_at(state, campaign_id, time_s)
    trial = campaign.trials.get(trial_id) if campaign else None
    if campaign is None or trial is None:
        state.ignored += 1
        return None
    trial.seq = seq
    if trial.status != "granted" or trial.epoch != epoch:
        state.ignored += 1
        return None
    campaign.flight.pop(trial.id, None)
    return campaign, trial


def _off_queue(state: State, trial: TrialState, time_s: float) -> float:
    """Take the trial off its host's queue; the seconds it was at its head."""
    trial.lease = None
    host = state.hosts.get(trial.host)
    if host is None or trial.id not in host.queue:
        return 0.0
    headed_s = max(0.0, time_s - host.head_since_s) if host.queue[0] == trial.id else 0.0
    if host.queue[0] == trial.id:
        host.head_since_s = time_s
    host.queue.remove(trial.id)
    return headed_s


def _spend(campaign: Campaign, trial: TrialState, device_s: float, wall_s: float) -> None:
    campaign.device_s += device_s
    accounts = [campaign.tiers.setdefault(trial.purpose or trial.tier, Spend())]
    entry = campaign.candidates.get(trial.candidate or "")
    if trial.purpose not in CLOSING and entry is not None:
        accounts.append(campaign.arms.setdefault(trial.arm, Spend()))
        if trial.arm == "search":
            accounts.append(campaign.search_tiers.setdefault(trial.tier, Spend()))
            if trial.tier == "fast" and trial.purpose == "":
                strategy = entry.candidate.strategy
                accounts.append(campaign.strategies.setdefault(strategy, Spend()))
    won = trial.word == "faster" and acceptable(trial.output_class, campaign.opening.objective)
    for account in accounts:
        account.device_s += device_s
        account.wall_s += wall_s
        account.ended += 1
        account.won += won


def _after(campaign: Campaign, trial: TrialState, time_s: float) -> None:
    campaign.active_s = time_s
    entry = campaign.candidates.get(trial.candidate or "")
    if entry is None or trial.purpose in CLOSING:
        return
    if trial.arm == "random" and trial.tier == "fast":
        campaign.looked_faster.pop(entry.id, None)
        if trial.word in CORRECT and trial.estimate is not None and trial.estimate > 1.0:
            campaign.looked_faster[entry.id] = None
    if trial.arm == "search" and trial.word == "faster":
        _show(campaign, entry, trial)
    restage(campaign, entry)
