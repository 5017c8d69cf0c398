"""The closing measurements: the release against the start, and the control arm's best."""

from __future__ import annotations

from collections.abc import Sequence

from protos.trial import Lease
from scheduler.leases import final_lease, search_lease
from scheduler.promotion import acceptable
from scheduler.state import MAX_ATTEMPTS, Campaign, CandidateState, Host

PURPOSES = ("final", "random_final")


def next_lease(campaign: Campaign, hosts: Sequence[Host]) -> Lease | str | None:
    """The closing trial to grant next; None when all are done, a reason when no host can."""
    for purpose in PURPOSES:
        host = hosts[0].id if hosts else ""
        lease = _lease(campaign, purpose, host)
        if lease is None or _settled(campaign, lease.trial):
            continue
        return lease if hosts else "no engine host answers"
    return None


def patience_s(campaign: Campaign) -> float:
    """Wall seconds after which the campaign ends even without its closing trials."""
    return campaign.budget_s + 10.0 * 60.0


def _lease(campaign: Campaign, purpose: str, host: str) -> Lease | None:
    start, release = campaign.start, campaign.incumbent
    if purpose == "final":
        if start is None or release is None or release.number == 0:
            return None
        return final_lease(campaign, start, release, host)
    best = best_of_control(campaign)
    return search_lease(campaign, best, "cold", purpose, host) if best else None


def _settled(campaign: Campaign, trial: str) -> bool:
    known = campaign.trials.get(trial)
    if known is None:
        return False
    return known.status == "ended" or (known.status == "lost" and known.attempt >= MAX_ATTEMPTS)


def best_of_control(campaign: Campaign) -> CandidateState | None:
    """Arm random's best by the fast tier's lower bound (by its estimate where none has a bound)."""
    objective = campaign.opening.objective
    best: tuple[bool, float, float, str] | None = None
    for id in campaign.looked_faster:
        trial = campaign.trials[campaign.candidates[id].trials["fast"]]
        if trial.estimate is None or not acceptable(trial.output_class, objective):
            continue
        low = trial.low
        key = (low is not None, low if low is not None else 0.0, trial.estimate, id)
        best = key if best is None else max(best, key)
    return campaign.candidates[best[3]] if best else None


def remarks(campaign: Campaign) -> list[str]:
    """What the closing measurements lack, and why, for the campaign's last line."""
    lines = []
    for purpose in PURPOSES:
        lease = _lease(campaign, purpose, "")
        if lease is None:
            lines.append(_NOT_RUN[purpose])
        elif (trial := campaign.trials.get(lease.trial)) is None or trial.status != "ended":
            lines.append(f"{purpose} was not measured: {trial.reason if trial else 'no host'}")
    if campaign.opening.policy.control_share <= 0.0:
        return [line for line in lines if line != _NOT_RUN["random_final"]]
    return lines


_NOT_RUN = {
    "final": "no release but the start, so no closing measurement",
    "random_final": "nothing of the control arm looked faster",
}
