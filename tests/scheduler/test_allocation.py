from __future__ import annotations

import msgspec
import pytest

from protos import events as e
from protos.messages import Policy
from protos.target import Budget
from scheduler import bandit
from scheduler.allocation import Choice, choose
from scheduler.decide import Append, decide
from scheduler.state import Spend
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import CAMPAIGN, FACTS, START, knob, opening


def chosen(given: Folded, now_s: float | None = None) -> Choice | None:
    return choose(given.campaign, given.now_s if now_s is None else now_s)


def granted(given: Folded) -> list[e.TrialGranted]:
    """Decide and fold until nothing more is granted."""
    found: list[e.TrialGranted] = []
    while True:
        actions = decide(given.state, given.now_s, 20.0)
        events = [a.event for a in actions if isinstance(a, Append)]
        grants = [event for event in events if isinstance(event, e.TrialGranted)]
        if not grants:
            return found
        for event in grants:
            given.add(event, 0.0)
        found.extend(grants)


def test_a_fast_winner_gets_a_slow_trial_before_others_get_a_fast_one() -> None:
    given = Folded()
    winner, _ = given.admit(knob("a")), given.admit(knob("b"))
    given.judge(winner, "fast", gain=0.2)
    assert chosen(given) == Choice(winner.id, "slow")


def test_the_best_fast_winner_goes_first() -> None:
    given = Folded()
    small, large = given.admit(knob("a")), given.admit(knob("b"))
    given.judge(small, "fast", gain=0.05)
    given.judge(large, "fast", gain=0.3)
    assert chosen(given) == Choice(large.id, "slow")


def test_a_cold_confirm_waits_for_a_better_fast_winner() -> None:
    given = Folded()
    first, better = given.admit(knob("a")), given.admit(knob("b"))
    given.judge(first, "fast", gain=0.1)
    given.judge(first, "slow", gain=0.1)
    assert chosen(given) == Choice(better.id, "fast")  # short trials have their share first
    given.judge(better, "fast", gain=0.3)
    assert chosen(given) == Choice(better.id, "slow")
    given.judge(better, "slow", gain=0.3)
    assert chosen(given) == Choice(better.id, "cold")


def test_a_weaker_fast_winner_does_not_delay_the_confirm_that_makes_it_stale() -> None:
    given = Folded()
    best, weak = given.admit(knob("a")), given.admit(knob("b"))
    given.judge(best, "fast", gain=0.3)
    given.judge(best, "slow", gain=0.3)
    given.judge(weak, "fast", gain=0.1)
    assert chosen(given) == Choice(best.id, "cold")


def test_a_cold_confirm_is_due_once_short_trials_had_their_share() -> None:
    given = Folded()
    winner = given.admit(knob("a"))
    for name in "bcd":
        given.admit(knob(name))
    given.judge(winner, "fast", gain=0.3)
    given.judge(winner, "slow", gain=0.3)
    assert chosen(given) != Choice(winner.id, "cold")
    given.judge(knob("b"), "fast", "no_gain", 0.0, device_s=60.0)
    assert chosen(given) == Choice(winner.id, "cold")


def test_the_last_chance_of_a_cold_confirm_is_taken() -> None:
    given = Folded(opening(budget_s=600.0))
    winner, _ = given.admit(knob("a")), given.admit(knob("b"))
    given.judge(winner, "fast", gain=0.3)
    given.judge(winner, "slow", gain=0.3)
    late_s = given.now_s + 470.0
    assert chosen(given, late_s) == Choice(winner.id, "cold")


def test_nothing_of_the_search_arm_is_granted_behind_a_cold_confirm() -> None:
    given = Folded()
    winner = given.admit(knob("a"))
    given.judge(winner, "fast")
    given.judge(winner, "slow")
    given.admit(knob("b"))
    given.grant(winner, "cold")
    assert granted(given) == []


def test_the_control_arm_may_run_behind_a_cold_confirm() -> None:
    given = Folded(opening(policy=Policy(control_share=0.5)))
    winner, control = given.admit(knob("a")), given.admit(knob("r", arm="random"))
    given.judge(winner, "fast")
    given.judge(winner, "slow")
    given.grant(winner, "cold")
    assert [g.lease.side_b.candidate for g in granted(given)] == [control.id]


def test_a_host_holds_two_leases_and_no_more() -> None:
    given = Folded()
    for name in "abcd":
        given.admit(knob(name))
    leases = [g.lease for g in granted(given)]
    assert len(leases) == 2
    assert len({lease.trial for lease in leases}) == 2


def test_two_hosts_share_the_work() -> None:
    given = Folded()
    given.add(e.EngineUp("host1", "cpu", ("fake",)))
    given.add(e.CampaignReady(CAMPAIGN, "host1", FACTS, START, 1.0))
    for name in "abcdef":
        given.admit(knob(name))
    hosts = [g.lease.host for g in granted(given)]
    assert sorted(hosts) == ["host0", "host0", "host1", "host1"]


def test_a_host_with_another_start_tree_is_given_nothing() -> None:
    given = Folded()
    given.add(e.EngineUp("host1", "cpu", ("fake",)))
    other = msgspec.structs.replace(START, files={"slim/model.py": "1" * 64})
    given.add(e.CampaignReady(CAMPAIGN, "host1", FACTS, other, 1.0))
    for name in "abcdef":
        given.admit(knob(name))
    assert {g.lease.host for g in granted(given)} == {"host0"}


def test_equal_shares_give_the_arms_equal_device_seconds() -> None:
    given = Folded(opening(policy=Policy(control_share=0.5)))
    for index in range(40):
        given.admit(knob(f"s{index}"))
        given.admit(knob(f"r{index}", arm="random", strategy="random"))
    for step in range(60):
        choice = chosen(given)
        assert choice is not None
        entry = given.campaign.candidates[choice.candidate]
        given.judge(entry.candidate, choice.tier, "no_gain", 0.0, device_s=1.0 + step % 3)
    arms = given.campaign.arms
    assert abs(arms["search"].device_s - arms["random"].device_s) <= 3.0


def test_the_control_arm_does_not_run_ahead_when_nothing_else_waits() -> None:
    given = Folded(opening(policy=Policy(control_share=0.5)))
    for index in range(10):
        given.admit(knob(f"r{index}", arm="random"))
    given.judge(knob("r0", arm="random"), "fast", "no_gain", 0.0)
    given.judge(knob("r1", arm="random"), "fast", "no_gain", 0.0)
    assert chosen(given) is None


def test_without_a_control_share_the_control_arm_gets_nothing() -> None:
    given = Folded(opening(policy=Policy(control_share=0.0)))
    given.admit(knob("r", arm="random"))
    assert chosen(given) is None


def test_past_winners_are_tried_first_on_a_new_release() -> None:
    given = Folded()
    winner, other = given.admit(knob("a")), given.admit(knob("b"))
    given.judge(other, "fast", gain=0.08)
    given.promote(winner)
    base = given.campaign.releases[1].id
    fresh, heir = knob("c", base=base), knob("b", base=base)
    given.admit(fresh)
    given.admit(heir)
    given.add(e.CandidateRebased(CAMPAIGN, other.id, heir.id))
    assert chosen(given) == Choice(heir.id, "fast")


def test_an_audited_loser_gets_its_slow_trial_but_no_promotion() -> None:
    given = Folded(opening(policy=Policy(control_share=0.0, audit_slow_share=1.0)))
    loser = given.admit(knob("a"))
    given.judge(loser, "fast", "slower", -0.2)
    assert chosen(given) == Choice(loser.id, "slow", "audit")
    given.judge(loser, "slow", "faster", 0.2)
    assert given.stage(loser) == "done"


def test_no_trial_is_begun_that_would_eat_into_the_closing_measurement() -> None:
    given = Folded(opening(budget_s=200.0))
    given.admit(knob("a"))
    assert chosen(given, given.now_s + 130.0) is not None
    assert chosen(given, given.now_s + 139.5) is None


def test_a_slow_trial_is_not_begun_when_its_confirm_would_come_too_late() -> None:
    given = Folded(opening(budget_s=300.0))
    winner = given.admit(knob("a"))
    given.judge(winner, "fast", gain=0.3)
    assert chosen(given, given.now_s + 150.0) == Choice(winner.id, "slow")
    assert chosen(given, given.now_s + 210.0) is None


def test_the_device_second_budget_keeps_the_closing_trial_back() -> None:
    order = msgspec.structs.replace(opening(), budget=Budget(3600.0, device_s=50.0))
    given = Folded(order)
    given.admit(knob("a"))
    given.admit(knob("b"))
    assert chosen(given) is not None
    given.judge(knob("a"), "fast", "slower", -0.1, device_s=20.0)
    assert chosen(given) is None


def test_a_strategy_that_was_never_tried_goes_first() -> None:
    spend = {"knobs": Spend(device_s=5.0, ended=5, won=5)}
    assert bandit.choose(["knobs", "playbook"], spend, "s") == "playbook"


def test_the_bandit_prefers_what_wins_and_starves_nobody() -> None:
    spend = {"knobs": Spend(), "playbook": Spend()}
    counts = {"knobs": 0, "playbook": 0}
    for turn in range(400):
        name = bandit.choose(["knobs", "playbook"], spend, f"c:{turn}")
        counts[name] += 1
        spend[name].ended += 1
        spend[name].device_s += 1.0
        spend[name].won += name == "playbook" and turn % 2
    assert counts["playbook"] > 1.5 * counts["knobs"]
    assert counts["knobs"] >= 80  # half of an equal share, at least


@pytest.mark.parametrize("seed", ["a", "b"])
def test_the_same_seed_draws_the_same_strategy(seed: str) -> None:
    spend = {name: Spend(device_s=1.0, ended=4, won=2) for name in ("x", "y", "z")}
    assert len({bandit.choose(["x", "y", "z"], spend, seed) for _ in range(5)}) == 1
