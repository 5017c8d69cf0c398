"""Which candidates on an older release are merged onto the incumbent next. Pure.

A few at a time: each costs an evaluator a check, and the next promotion makes it stale again. Past
winners go first, best first; then whatever waited, oldest first.
"""

from __future__ import annotations

import heapq

from scheduler.state import Campaign, CandidateState

AHEAD = 12  # merged candidates that wait for their fast trial


def due(campaign: Campaign) -> list[str]:
    """Ids of candidates of the arm `search` to rebase now; none of them is in flight."""
    if len(campaign.releases) < 2:
        return []
    stale: list[CandidateState] = []
    ahead = 0
    for id in campaign.live:
        candidate = campaign.candidates[id]
        if candidate.candidate.arm != "search":
            continue
        if not campaign.is_on_incumbent(candidate.candidate):
            if not any(trial in campaign.flight for trial in candidate.trials.values()):
                stale.append(candidate)
        elif candidate.candidate.parents and candidate.stage in ("admitted", "ready"):
            ahead += 1
    if ahead >= AHEAD or not stale:
        return []
    best = heapq.nsmallest(AHEAD - ahead, stale, key=lambda c: _order(campaign, c))
    return [candidate.id for candidate in best]


def _order(campaign: Campaign, candidate: CandidateState) -> tuple[float, int]:
    fast = campaign.trials.get(candidate.trials.get("fast", ""))
    seen = candidate.prior if fast is None else fast.estimate
    return -(seen or 0.0), candidate.admitted_seq
