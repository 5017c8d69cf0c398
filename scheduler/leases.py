"""The sides of a trial as whole trees, and the lease that grants it."""

from __future__ import annotations

from collections.abc import Mapping

from protos.candidate import Build, Scalar
from protos.release import Release
from protos.trial import Lease, Side, Tier, trial_id
from scheduler.plans import EXPIRES_S, plan_for
from scheduler.state import Campaign, CandidateState


def merged_files(base: Mapping[str, str], change: Mapping[str, str | None]) -> dict[str, str]:
    """Path to digest of `base` with `change` over it; null deletes."""
    merged: dict[str, str | None] = {**base, **change}
    return {path: digest for path, digest in merged.items() if digest is not None}


def merged_knobs(base: Mapping[str, Scalar], change: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {**base, **change}


def merged_builds(base: tuple[Build, ...], change: tuple[Build, ...]) -> tuple[Build, ...]:
    named = {build.name: build for build in (*base, *change)}
    return tuple(named[name] for name in sorted(named))


def side_of_release(release: Release, rung: str = "hot") -> Side:
    return Side(release.id, release.files, release.knobs, release.libraries, rung=rung)


def side_of_candidate(base: Release, candidate: CandidateState, rung: str | None = None) -> Side:
    """Side B: the base with a checked candidate on it. Raises ValueError for an unchecked one."""
    change, check = candidate.candidate, candidate.check
    if check is None or not check.ok:
        raise ValueError(f"{candidate.id} wasn't checked")
    return Side(
        release=base.id,
        files=merged_files(base.files, change.files),
        knobs=merged_knobs(base.knobs, change.knobs),
        libraries={**base.libraries, **check.libraries},
        candidate=candidate.id,
        rung=rung or check.rung,
        delta=tuple(sorted(change.files)),
        changed=check.changed,
    )


def search_lease(
    campaign: Campaign, candidate: CandidateState, tier: Tier, purpose: str, host: str
) -> Lease:
    """The lease of a candidate's trial against its base release."""
    base = campaign.release(candidate.candidate.base)
    if base is None:
        raise ValueError(f"{candidate.id} has no base in campaign {campaign.id}")
    rung = "cold" if tier == "cold" else campaign.opening.policy.force_rung
    side_a = side_of_release(base, "cold" if tier == "cold" else "hot")
    return _lease(
        campaign,
        candidate.id,
        side_a,
        side_of_candidate(base, candidate, rung),
        tier,
        purpose,
        host,
    )


def final_lease(campaign: Campaign, start: Release, release: Release, host: str) -> Lease:
    """The closing measurement: the release against the start, both from disk."""
    sides = side_of_release(start, "cold"), side_of_release(release, "cold")
    return _lease(campaign, release.id, *sides, "cold", "final", host)


def _lease(
    campaign: Campaign,
    subject: str,
    side_a: Side,
    side_b: Side,
    tier: Tier,
    purpose: str,
    host: str,
) -> Lease:
    opening = campaign.opening
    target, workload, objective = opening.target, opening.workload, opening.objective
    trial = trial_id(subject, side_a.release, target, workload, objective, tier, purpose)
    before = campaign.trials.get(trial)
    return Lease(
        trial=trial,
        campaign=campaign.id,
        host=host,
        attempt=before.attempt + 1 if before else 1,
        tier=tier,
        side_a=side_a,
        side_b=side_b,
        target=target,
        workload=workload,
        objective=objective,
        plan=plan_for(opening, tier, purpose),
        expires_s=EXPIRES_S[tier],
        purpose=purpose,
    )
