from __future__ import annotations

import msgspec
import pytest

from protos import events as e
from protos.candidate import Candidate, Cost
from protos.messages import Policy
from protos.target import Budget
from scheduler.admission import refusal
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import CAMPAIGN, START, knob, opening


def test_a_fresh_candidate_on_the_incumbent_is_admitted() -> None:
    given = Folded()
    assert refusal(given.state, knob("a"), given.now_s) is None


def test_a_repeat_is_refused_whoever_makes_it() -> None:
    given = Folded()
    given.admit(knob("a", strategy="knobs"))
    again = knob("a", strategy="playbook")
    assert "a repeat" in str(refusal(given.state, again, given.now_s))


def test_the_same_change_in_the_control_arm_is_no_repeat() -> None:
    given = Folded()
    given.admit(knob("a"))
    assert refusal(given.state, knob("a", arm="random"), given.now_s) is None


def test_a_candidate_on_an_older_release_is_admitted_to_be_rebased() -> None:
    given = Folded()
    given.promote(given.admit(knob("a")))
    assert refusal(given.state, knob("b"), given.now_s) is None


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (knob("a", base="r000000000000"), "is no release"),
        (Candidate("other", START.id, knobs={"a": 1}), "no campaign other"),
        (knob("a", arm="luck"), "none of search, random, canary"),
        (Candidate(CAMPAIGN, START.id), "changes nothing"),
        (Candidate(CAMPAIGN, START.id, knobs={"a": 1}, output_class="fine"), "unknown output"),
        (Candidate(CAMPAIGN, START.id, files={f"slim/{i}.py": None for i in range(65)}), "65"),
    ],
)
def test_what_can_not_be_tried_is_refused_with_a_reason(candidate: Candidate, reason: str) -> None:
    given = Folded()
    assert reason in str(refusal(given.state, candidate, given.now_s))


def test_the_control_arm_builds_on_the_start_only() -> None:
    given = Folded()
    given.promote(given.admit(knob("a")))
    later = given.campaign.releases[1].id
    assert "start release" in str(
        refusal(given.state, knob("r", arm="random", base=later), given.now_s)
    )
    assert refusal(given.state, knob("r", arm="random"), given.now_s) is None


def test_only_the_policys_strategies_may_submit() -> None:
    given = Folded(opening(policy=Policy(strategies=("playbook",))))
    assert "'knobs'" in str(refusal(given.state, knob("a"), given.now_s))
    assert refusal(given.state, knob("a", strategy="playbook"), given.now_s) is None


def test_a_spent_budget_refuses_everything() -> None:
    given = Folded(opening(budget_s=100.0))
    assert "budget is spent" in str(refusal(given.state, knob("a"), given.now_s + 99.0))


def test_a_spent_language_model_budget_refuses_everything() -> None:
    order = msgspec.structs.replace(opening(), budget=Budget(600.0, llm_tokens=100))
    given = Folded(order)
    given.admit(msgspec.structs.replace(knob("a"), cost=Cost(llm_tokens=100)))
    assert "100 language-model tokens" in str(refusal(given.state, knob("b"), given.now_s))


def test_a_paused_campaign_takes_nothing() -> None:
    given = Folded()
    given.add(e.CampaignPaused(CAMPAIGN, "by hand", 1.0))
    assert "is paused" in str(refusal(given.state, knob("a"), given.now_s))
