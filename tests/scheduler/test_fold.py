from __future__ import annotations

import msgspec
import pytest

from protos import events as e
from protos.candidate import Cost
from protos.messages import Policy
from protos.trial import Verdict
from scheduler.budget import wall_seen_s, wall_spent_s
from scheduler.fold import apply
from scheduler.state import MAX_ATTEMPTS
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import CAMPAIGN, START, knob, opening


def verdict(trial: str, candidate: str) -> Verdict:
    return Verdict(trial, candidate, "fast", "slower", "", "0" * 64, device_s=1.0)


def test_a_candidate_climbs_one_tier_at_a_time() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    assert given.stage(patch) == "ready"
    given.judge(patch, "fast")
    assert given.stage(patch) == "won_fast"
    given.judge(patch, "slow")
    assert given.stage(patch) == "won_slow"
    given.judge(patch, "cold")
    assert given.stage(patch) == "won_cold"


@pytest.mark.parametrize("word", ["slower", "no_gain", "inconclusive", "incorrect", "not_engaged"])
def test_whatever_is_not_faster_in_the_fast_tier_is_done(word: str) -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    given.judge(patch, "fast", word)  # type: ignore[arg-type]
    assert given.stage(patch) == "done"
    assert given.campaign.verdicts == {word: 1}


def test_a_failed_check_is_the_verdict_invalid_without_a_trial() -> None:
    given = Folded()
    patch = given.admit(knob("a"), ok=False)
    assert given.stage(patch) == "invalid"
    assert given.campaign.verdicts == {"invalid": 1}


def test_a_late_result_of_an_older_epoch_changes_nothing() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    first = given.grant(patch, "fast")
    epoch = first.epoch
    given.add(e.TrialLost(CAMPAIGN, first.id, epoch, "gone"))
    second = given.grant(patch, "fast")
    given.add(e.TrialEnded(CAMPAIGN, epoch, verdict(first.id, patch.id)))
    assert given.campaign.trials[first.id].status == "granted"
    assert second.attempt == 2
    assert given.state.ignored == 1


def test_a_second_ending_changes_nothing() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    trial = given.judge(patch, "fast", "faster")
    given.add(e.TrialEnded(CAMPAIGN, trial.epoch, verdict(trial.id, patch.id)))
    assert given.campaign.trials[trial.id].word == "faster"
    assert given.campaign.device_s == 1.0


def test_a_trial_lost_too_often_parks_its_candidate() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert given.stage(patch) == "ready"
        trial = given.grant(patch, "fast")
        assert trial.attempt == attempt
        given.add(e.TrialLost(CAMPAIGN, trial.id, trial.epoch, "the engine died"))
    assert given.stage(patch) == "parked"
    assert "the engine died" in given.campaign.candidates[patch.id].reason


def test_a_voided_verdict_puts_the_candidate_back_before_it() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    given.judge(patch, "fast")
    slow = given.judge(patch, "slow")
    given.add(e.TrialVoided(CAMPAIGN, slow.id, "the engine's weights had changed"))
    assert given.stage(patch) == "won_fast"
    assert given.campaign.verdicts["faster"] == 1
    assert given.grant(patch, "slow").attempt == 2


def test_a_promotion_that_does_not_stand_on_the_incumbent_is_passed_over() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    given.promote(patch)
    assert given.campaign.incumbent is not None
    zombie = msgspec.structs.replace(given.campaign.incumbent, knobs={"b": 1}, parent=START.id)
    given.add(e.ReleasePromoted(zombie, ()))
    assert len(given.campaign.releases) == 2
    assert given.state.ignored == 1


def test_a_repeat_refused_leaves_the_first_submission_alone() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    given.add(e.CandidateRefused(patch, "a repeat"))
    assert given.stage(patch) == "ready"


def test_time_without_a_leader_is_not_billed() -> None:
    given = Folded()
    opened_s = 1002.0
    given.add(e.CandidateAdmitted(knob("a")), after_s=47.0)  # the last sign of the old leader
    seen_s = wall_seen_s(given.campaign)
    assert seen_s == pytest.approx(given.now_s - opened_s)
    given.add(e.CampaignResumed(CAMPAIGN, seen_s, 600.0), after_s=3600.0)
    assert wall_spent_s(given.campaign, given.now_s + 10.0) == pytest.approx(seen_s + 10.0)


def test_a_pause_stops_the_clock_and_a_resumption_can_add_budget() -> None:
    given = Folded()
    given.add(e.CampaignPaused(CAMPAIGN, "by hand", 30.0))
    assert wall_spent_s(given.campaign, given.now_s + 1e6) == 30.0
    given.add(e.CampaignResumed(CAMPAIGN, 30.0, 900.0))
    assert given.campaign.state == "running"
    assert given.campaign.budget_s == 900.0


def test_a_host_that_starts_again_is_ready_for_nothing() -> None:
    given = Folded()
    assert given.campaign.ready
    given.add(e.EngineUp("host0", "cpu", ("fake",)))
    assert not given.campaign.ready


def test_every_correct_candidate_in_the_audited_share_waits_for_a_slow_trial() -> None:
    given = Folded(opening(policy=Policy(control_share=0.0, audit_slow_share=1.0)))
    patch = given.admit(knob("a"))
    given.judge(patch, "fast", "no_gain", 0.0)
    assert given.stage(patch) == "audit"
    given.judge(patch, "slow", "no_gain", 0.0)
    assert given.stage(patch) == "done"
    wrong = given.admit(knob("b"))
    given.judge(wrong, "fast", "incorrect")
    assert given.stage(wrong) == "done"


def test_the_control_arm_never_climbs() -> None:
    given = Folded()
    patch = given.admit(knob("r", arm="random"))
    given.judge(patch, "fast", gain=0.5)
    assert given.stage(patch) == "done"
    assert list(given.campaign.looked_faster) == [patch.id]


def test_language_model_costs_are_summed_refused_proposals_included() -> None:
    given = Folded()
    costly = msgspec.structs.replace(knob("a"), cost=Cost(llm_tokens=10, llm_usd=0.5))
    other = msgspec.structs.replace(knob("b"), cost=Cost(llm_tokens=5, llm_usd=0.25))
    given.add(e.CandidateAdmitted(costly))
    given.add(e.CandidateRefused(other, "a stale base"))
    assert given.campaign.llm_tokens == 15
    assert given.campaign.llm_usd == pytest.approx(0.75)


def test_an_event_folded_twice_counts_once() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    given.judge(patch, "fast")
    seq, time_s, event = given.log[-1]
    apply(given.state, seq, time_s, event)
    assert given.campaign.device_s == 1.0
    assert given.state.ignored == 0


def test_events_of_unknown_campaigns_are_passed_over() -> None:
    given = Folded()
    given.add(e.CampaignRefused("other", "no such model"))
    given.add(e.TrialLost("other", "t0", 1, "gone"))
    assert given.state.turned_away == {"other": "no such model"}
    assert list(given.state.campaigns) == [CAMPAIGN]
