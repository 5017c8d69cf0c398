"""A suspicious gain counts only once an independent trial of the same tier has seen it too."""

from __future__ import annotations

import math

import pytest

from protos import events as e
from protos.candidate import Candidate
from protos.trial import Interval, Tier, Verdict, Word
from scheduler import allocation
from scheduler.decide import Append, decide
from scheduler.plans import RECHECK, plan_for
from scheduler.promotion import next_release, won
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import CAMPAIGN, START


@pytest.fixture
def given() -> Folded:
    return Folded()


@pytest.fixture
def patch(given: Folded) -> Candidate:
    return given.admit(Candidate(CAMPAIGN, START.id, {"fake/model.py": "a" * 64}))


def end(
    given: Folded,
    patch: Candidate,
    tier: Tier,
    purpose: str = "",
    *,
    word: Word = "faster",
    gain: float = 2.5,
    quarantined: str | None = "too good to believe",
) -> None:
    trial = given.grant(patch, tier, purpose)
    ratio = math.exp(gain)
    interval = Interval("output_tok_s", ratio, ratio * 0.95, ratio * 1.05, 8)
    verdict = Verdict(
        trial.id,
        patch.id,
        tier,
        word,
        "",
        "0" * 64,
        interval,
        "equivalent",
        metrics_b={"ttft_ms_p99": 200.0},
        device_s=1.0,
        quarantined=quarantined,
    )
    given.add(e.TrialEnded(CAMPAIGN, trial.epoch, verdict))


def test_a_quarantined_win_waits_for_a_second_look(given: Folded, patch: Candidate) -> None:
    end(given, patch, "fast")
    assert given.stage(patch) == "recheck"
    choice = allocation.choose(given.campaign, given.now_s)
    assert choice == allocation.Choice(patch.id, "fast", RECHECK)


def test_a_second_look_that_agrees_lets_it_go_on(given: Folded, patch: Candidate) -> None:
    end(given, patch, "fast")
    end(given, patch, "fast", RECHECK, gain=2.48)
    assert given.stage(patch) == "won_fast"
    assert won(given.campaign, given.campaign.candidates[patch.id], "fast")


@pytest.mark.parametrize(
    ("word", "gain"), [("no_gain", 0.0), ("incorrect", 2.5), ("faster", 1.0), ("faster", 4.0)]
)
def test_a_second_look_that_says_otherwise_ends_it(
    given: Folded, patch: Candidate, word: Word, gain: float
) -> None:
    end(given, patch, "fast")
    end(given, patch, "fast", RECHECK, word=word, gain=gain)
    assert given.stage(patch) == "done"
    assert "quarantined" in given.campaign.candidates[patch.id].reason
    assert not won(given.campaign, given.campaign.candidates[patch.id], "fast")


@pytest.mark.parametrize("tier", ["slow", "cold"])
def test_a_quarantined_win_of_a_later_tier_is_looked_at_again_too(
    given: Folded, patch: Candidate, tier: Tier
) -> None:
    for before in ("fast", "slow", "cold")[: ("fast", "slow", "cold").index(tier)]:
        end(given, patch, before, quarantined=None)
    end(given, patch, tier)
    assert given.stage(patch) == "recheck"
    choice = allocation.choose(given.campaign, given.now_s)
    assert choice == allocation.Choice(patch.id, tier, RECHECK)


def test_nothing_quarantined_is_promoted_without_a_second_look(
    given: Folded, patch: Candidate
) -> None:
    for tier in ("fast", "slow"):
        end(given, patch, tier, quarantined=None)
    end(given, patch, "cold")
    with pytest.raises(ValueError, match="hasn't won"):
        next_release(given.campaign, given.campaign.candidates[patch.id])
    end(given, patch, "cold", RECHECK)
    release = next_release(given.campaign, given.campaign.candidates[patch.id])
    assert len(release.evidence) == 4


def test_what_was_looked_at_twice_is_not_looked_at_again(given: Folded, patch: Candidate) -> None:
    end(given, patch, "fast")
    end(given, patch, "fast", RECHECK)
    for tier in ("slow", "cold"):
        end(given, patch, tier)
    assert given.stage(patch) == "won_cold"
    assert len(next_release(given.campaign, given.campaign.candidates[patch.id]).evidence) == 4


def test_a_win_that_is_not_quarantined_needs_no_second_look(
    given: Folded, patch: Candidate
) -> None:
    end(given, patch, "fast", quarantined=None)
    assert given.stage(patch) == "won_fast"


def test_a_voided_win_takes_its_quarantine_with_it(given: Folded, patch: Candidate) -> None:
    end(given, patch, "fast")
    trial = given.campaign.candidates[patch.id].trials["fast"]
    given.add(e.TrialVoided(CAMPAIGN, trial, "a doubt"))
    assert given.stage(patch) == "ready"
    assert given.campaign.trials[trial].quarantined is None


def test_a_second_look_goes_to_another_host_where_there_is_one(
    given: Folded, patch: Candidate
) -> None:
    end(given, patch, "fast")
    given.add(e.EngineUp("host1", "cpu", ("fake",)))
    ready = next(event for _, _, event in given.log if isinstance(event, e.CampaignReady))
    given.add(e.CampaignReady(CAMPAIGN, "host1", ready.facts, ready.start, 1.0))
    (action,) = decide(given.state, given.now_s, 20.0)
    assert isinstance(action, Append)
    assert isinstance(action.event, e.TrialGranted)
    assert (action.event.lease.host, action.event.lease.purpose) == ("host1", RECHECK)


def test_a_second_look_never_stops_early_and_grades_more(given: Folded) -> None:
    for tier in ("fast", "slow", "cold"):
        first, again = plan_for(given.order, tier, ""), plan_for(given.order, tier, RECHECK)
        assert (again.rule.mode, again.rule.max_units) == ("fixed", first.rule.max_units)
        assert again.grade_requests > first.grade_requests
