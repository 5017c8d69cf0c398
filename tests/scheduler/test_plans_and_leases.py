from __future__ import annotations

import pytest

from protos import stopping
from protos.candidate import Build, Candidate, Check
from protos.messages import Policy
from protos.trial import Tier
from scheduler.leases import final_lease, search_lease
from scheduler.plans import plan_for
from scheduler.state import CandidateState
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import CAMPAIGN, START, knob, opening


@pytest.mark.parametrize("tier", ["fast", "slow", "cold"])
def test_every_plan_can_reach_a_decision(tier: Tier) -> None:
    rule = plan_for(opening(), tier, "").rule
    assert stopping.decide([0.5] * rule.max_units, rule) == "faster"
    assert stopping.decide([-0.5] * rule.max_units, rule) == "slower"


def test_the_closing_plan_always_makes_eight_starts_and_then_has_a_bound() -> None:
    plan = plan_for(opening(), "cold", "final")
    assert plan.starts == 8
    assert stopping.decide([0.5] * 7, plan.rule) == "continue"
    assert stopping.decide([0.5] * 8, plan.rule) == "faster"
    assert stopping.lower_bound([0.5] * 8, plan.rule.alpha) == pytest.approx(0.49, abs=0.02)


def test_only_cold_plans_count_starts() -> None:
    assert [plan_for(opening(), t, "").starts for t in ("fast", "slow", "cold")] == [0, 0, 8]


def test_the_cold_process_control_forces_the_rung_of_every_search_trial() -> None:
    given = Folded(opening(policy=Policy(force_rung="cold")))
    patch = given.admit(knob("a"))
    lease = search_lease(given.campaign, given.campaign.candidates[patch.id], "fast", "", "host0")
    assert (lease.plan.force_rung, lease.side_b.rung) == ("cold", "cold")


def test_side_b_is_the_whole_tree_with_the_change_in_it() -> None:
    given = Folded()
    change = Candidate(
        CAMPAIGN,
        START.id,
        files={"slim/csrc/k.c": "1" * 64, "slim/model.py": None},
        knobs={"threads": 2},
        builds=(Build("k", ("slim/csrc/k.c",)),),
    )
    check = Check(
        change.id, True, rung="warm", changed=("slim/model.py",), libraries={"k": "2" * 64}
    )
    entry = CandidateState(change, change.id, 1, 1, check=check)
    lease = search_lease(given.campaign, entry, "fast", "", "host0")
    assert lease.side_a.files == START.files
    assert lease.side_a.candidate is None
    assert lease.side_b.files == {"slim/csrc/k.c": "1" * 64}
    assert lease.side_b.knobs == {"threads": 2}
    assert lease.side_b.libraries == {"k": "2" * 64}
    assert lease.side_b.delta == ("slim/csrc/k.c", "slim/model.py")
    assert lease.side_b.rung == "warm"


def test_an_unchecked_candidate_has_no_lease() -> None:
    given = Folded()
    change = knob("a")
    with pytest.raises(ValueError, match="wasn't checked"):
        search_lease(given.campaign, CandidateState(change, change.id, 1, 1), "fast", "", "host0")


def test_the_closing_trial_names_no_candidate_and_differs_by_release() -> None:
    given = Folded()
    given.promote(given.admit(knob("a")))
    first = final_lease(given.campaign, START, given.campaign.releases[1], "host0")
    other = final_lease(given.campaign, START, START, "host0")
    assert first.side_b.candidate is None
    assert first.side_a.release == START.id
    assert first.purpose == "final"
    assert first.trial != other.trial
