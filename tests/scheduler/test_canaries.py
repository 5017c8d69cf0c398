"""Canaries in a campaign: measured as others are, within their share, and never promoted."""

from __future__ import annotations

from collections import Counter

from protos import events as e
from protos.messages import Policy
from protos.trial import Lease
from scheduler.admission import refusal
from services.ledger import Recorded
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import knob, opening, releases
from tests.scheduler.test_campaigns_simulated import play

SHARE = 0.2
POLICY = Policy(control_share=0.0, canary_share=SHARE)
NULLS = {f"null{n}": 0.0 for n in range(30)}
CANARIES = {"gain": 0.4, **{f"quiet{n}": 0.0 for n in range(30)}}


def granted(events: list[Recorded], arm: str) -> list[Lease]:
    """The leases of an arm's candidates."""
    arms = {
        r.event.candidate.id: r.event.candidate.arm
        for r in events
        if isinstance(r.event, e.CandidateAdmitted)
    }
    leases = [r.event.lease for r in events if isinstance(r.event, e.TrialGranted)]
    return [lease for lease in leases if arms.get(lease.side_b.candidate or "") == arm]


def campaign(policy: Policy) -> list[Recorded]:
    candidates = [knob(name, "canary", "canary") for name in CANARIES]
    candidates += [knob(name) for name in NULLS]
    return play({**NULLS, **CANARIES}, candidates, opening(policy=policy))


def test_a_canary_that_gains_is_measured_by_two_tiers_and_never_promoted() -> None:
    events = campaign(POLICY)
    gain = knob("gain", "canary").id
    tiers = [x.tier for x in granted(events, "canary") if x.side_b.candidate == gain]
    assert tiers == ["fast", "slow"]
    assert releases(events) == []


def test_canaries_keep_to_their_share_of_the_engines_time() -> None:
    events = campaign(POLICY)
    spent: Counter[str] = Counter()
    arm_of = {x.trial: arm for arm in ("canary", "search") for x in granted(events, arm)}
    for recorded in events:
        if isinstance(recorded.event, e.TrialEnded):
            verdict = recorded.event.verdict
            spent[arm_of.get(verdict.trial, "closing")] += verdict.device_s
    longest_s = max(
        r.event.verdict.device_s
        for r in events
        if isinstance(r.event, e.TrialEnded) and arm_of.get(r.event.verdict.trial) == "canary"
    )
    assert 0.0 < spent["canary"] <= SHARE * (spent["canary"] + spent["search"]) + longest_s


def test_no_share_no_canaries() -> None:
    assert granted(campaign(Policy(control_share=0.0, canary_share=0.0)), "canary") == []


def test_a_lease_does_not_say_that_its_candidate_is_a_canary() -> None:
    lease = granted(campaign(POLICY), "canary")[0]
    assert "canary" not in repr(lease)


def test_a_canary_may_enter_whatever_the_strategies_and_only_on_the_start() -> None:
    given = Folded(opening(policy=Policy(strategies=("knobs",))))
    assert refusal(given.state, knob("a", "canary", "canary"), given.now_s) is None
    given.promote(given.admit(knob("b")))
    later = knob("c", "canary", "canary", base=given.campaign.release_ids[-1])
    assert "builds on the start" in str(refusal(given.state, later, given.now_s))
