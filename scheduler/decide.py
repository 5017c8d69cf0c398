"""The whole decision: state and time in, what to write and what to send out. Pure.

`decide` gives the events that should be appended now; each expects its entity's last sequence, so
whoever lost a race folds again and decides anew. `owed` gives the commands that the state has
promised; sending one twice is harmless (hosts and evaluators know trial and candidate by id).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from protos import events as e
from protos.messages import CheckCandidate, PrepareTarget, RunTrial
from scheduler import allocation, closing, stale
from scheduler.budget import spent_reason, wall_spent_s
from scheduler.leases import search_lease
from scheduler.plans import RECHECK
from scheduler.promotion import next_release
from scheduler.state import Campaign, Host, State, over, running

SILENT_AFTER = 2  # leases that ran out in a row before a host is left alone


@dataclass(frozen=True)
class Append:
    """Write `event` to the entity if its last sequence is still `expect`."""

    entity: str
    id: str
    event: e.Event
    expect: int


@dataclass(frozen=True)
class Rebase:
    """Merge the candidate onto the incumbent; needs blobs, so the actor does it."""

    campaign: str
    candidate: str


Action = Append | Rebase


@dataclass(frozen=True)
class Owed:
    """A command to a room; `once` names the obligation, `again_s` when to send it again."""

    once: str
    room: str
    command: PrepareTarget | CheckCandidate | RunTrial
    key: str
    again_s: float | None = None
    candidate: str | None = None


def decide(state: State, now_s: float, idle_finish_s: float) -> list[Action]:
    """What to append now. One kind at a time: what follows from it waits for the next fold."""
    losses = _losses(state, now_s)
    if losses:
        return losses
    actions: list[Action] = []
    for campaign in state.campaigns.values():
        if running(campaign):
            actions.extend(_of_campaign(state, campaign, now_s, idle_finish_s))
        elif campaign.state == "opening" and campaign.since_s is not None:
            actions.extend(_never_ready(campaign, now_s))
    return actions


def _losses(state: State, now_s: float) -> list[Action]:
    """Leases that ran out, and those of a host that has started again since."""
    lost: list[Action] = []
    for host in state.hosts.values():
        for position, id in enumerate(host.queue):
            campaign = next(c for c in state.campaigns.values() if id in c.flight)
            trial = campaign.trials[id]
            if trial.lease is None or campaign.state == "paused":
                continue
            reason = None
            if trial.epoch < host.up_seq:
                reason = f"engine host {host.id} started again"
            elif position == 0 and now_s >= host.head_since_s + trial.lease.expires_s:
                reason = f"no result from {host.id} within {trial.lease.expires_s:.0f} s"
            if reason is not None:
                event = e.TrialLost(campaign.id, id, trial.epoch, reason)
                lost.append(Append("trial", id, event, trial.seq))
    return lost


def _never_ready(campaign: Campaign, now_s: float) -> list[Action]:
    if wall_spent_s(campaign, now_s) < campaign.budget_s:
        return []
    target = campaign.opening.target
    reason = (
        f"no engine host with {target.engine} on {target.device_class} came up within the budget "
        f"of {campaign.budget_s:g} s: give more time (--budget), or see what perpetune doctor says"
    )
    return [_campaign(campaign, e.CampaignRefused(campaign.id, reason))]


def _of_campaign(
    state: State, campaign: Campaign, now_s: float, idle_finish_s: float
) -> list[Action]:
    if campaign.start is not None and not campaign.announced:
        event = e.ReleasePromoted(campaign.start, ())
        return [Append("release", f"{campaign.id}-0", event, 0)]
    if not campaign.closing:
        promotion = _promotion(campaign)
        if promotion is not None:
            return [promotion]
    reason = spent_reason(campaign, now_s)
    if reason is None and not campaign.closing:
        merges = [Rebase(campaign.id, id) for id in stale.due(campaign)]
        if merges:
            return list(merges)
        grants = _grants(state, campaign, now_s)
        if grants or not _idle(state, campaign, now_s, idle_finish_s):
            return list(grants)
    return _close(state, campaign, now_s, reason or "nothing is left to try")


def _promotion(campaign: Campaign) -> Append | None:
    for id in campaign.live:
        candidate = campaign.candidates[id]
        if candidate.stage == "won_cold" and campaign.is_on_incumbent(candidate.candidate):
            release = next_release(campaign, candidate)
            event = e.ReleasePromoted(release, release.evidence)
            # One entity a number, so that two schedulers can't both promote.
            return Append("release", f"{campaign.id}-{release.number}", event, 0)
    return None


def serving(state: State, campaign: Campaign) -> list[Host]:
    """Hosts that are ready for the campaign and answer."""
    hosts = (state.hosts.get(id) for id in sorted(campaign.ready))
    return [host for host in hosts if host is not None and host.expired < SILENT_AFTER]


def _grants(state: State, campaign: Campaign, now_s: float) -> list[Append]:
    """One grant at a time: the next choice must already see it in flight."""
    free = [h for h in serving(state, campaign) if len(h.queue) < allocation.DEPTH]
    if not free:
        return []
    choice = allocation.choose(campaign, now_s)
    if choice is None:
        return []
    candidate = campaign.candidates[choice.candidate]
    # A second look is best taken by another host than the first one's, where there is one.
    first = campaign.trials.get(candidate.trials.get(choice.tier, ""))
    seen = first.host if first and choice.purpose == RECHECK else None
    host = min(free, key=lambda h: (h.id == seen, len(h.queue), h.id))
    lease = search_lease(campaign, candidate, choice.tier, choice.purpose, host.id)
    before = campaign.trials.get(lease.trial)
    return [Append("trial", lease.trial, e.TrialGranted(lease), before.seq if before else 0)]


def _idle(state: State, campaign: Campaign, now_s: float, idle_finish_s: float) -> bool:
    if campaign.flight or not serving(state, campaign):
        return False
    if any(campaign.candidates[id].stage == "admitted" for id in campaign.live):
        return False
    return now_s - campaign.active_s >= idle_finish_s


def _close(state: State, campaign: Campaign, now_s: float, reason: str) -> list[Action]:
    """What runs finishes; then the closing trials; then the end."""
    if campaign.flight:
        return []
    due = closing.next_lease(campaign, serving(state, campaign))
    if due is not None and wall_spent_s(campaign, now_s) < closing.patience_s(campaign):
        if isinstance(due, str):
            return []  # no host answers just now
        before = campaign.trials.get(due.trial)
        expect = before.seq if before else 0
        return [Append("trial", due.trial, e.TrialGranted(due), expect)]
    wall_s = wall_spent_s(campaign, now_s)
    text = "; ".join([reason, *closing.remarks(campaign)])
    return [_campaign(campaign, e.CampaignFinished(campaign.id, text, wall_s, campaign.device_s))]


def _campaign(campaign: Campaign, event: e.Event) -> Append:
    return Append("campaign", campaign.id, event, campaign.seq)


def owed(state: State) -> list[Owed]:
    """The commands that the state has promised and no event has answered yet."""
    commands: list[Owed] = []
    for campaign in state.campaigns.values():
        if campaign.state in ("opening", "running"):
            commands.extend(_preparations(state, campaign))
        if campaign.state == "running":
            commands.extend(_checks(campaign))
        if not over(campaign):
            commands.extend(_runs(campaign))
    return commands


def _preparations(state: State, campaign: Campaign) -> list[Owed]:
    target = campaign.opening.target
    busy = {host for c in state.campaigns.values() if running(c) for host in c.ready}
    return [
        Owed(
            f"prepare {campaign.id} {campaign.since_s} {host.id} {host.up_seq}",
            "engine_host",
            PrepareTarget(campaign.id, target, campaign.opening.workload),
            host.id,
        )
        for host in state.hosts.values()
        if host.id not in campaign.ready
        and host.id not in busy
        and host.device_class == target.device_class
        and target.engine in host.engines
    ]


def _checks(campaign: Campaign) -> list[Owed]:
    space = campaign.facts.space if campaign.facts else "[]"
    found = []
    for id in campaign.live:
        candidate = campaign.candidates[id]
        if candidate.stage != "admitted":
            continue
        base = campaign.release(candidate.candidate.base)
        if base is not None:
            command = CheckCandidate(candidate.candidate, base, space)
            found.append(Owed(f"check {id}", "evaluator", command, id, 60.0, id))
    return found


def _runs(campaign: Campaign) -> list[Owed]:
    found = []
    for id in campaign.flight:
        trial = campaign.trials[id]
        if trial.lease is not None:
            lease = msgspec.structs.replace(trial.lease, epoch=trial.epoch)
            once = f"run {id} {trial.epoch}"
            command = RunTrial(lease)
            found.append(Owed(once, "engine_host", command, trial.host, candidate=trial.candidate))
    return found
