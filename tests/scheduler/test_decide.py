from __future__ import annotations

import msgspec
import pytest

from protos import events as e
from protos.messages import CheckCandidate, OpenCampaign, Policy, PrepareTarget, RunTrial
from protos.trial import Verdict
from scheduler import stale
from scheduler.decide import Append, Rebase, decide, owed
from scheduler.state import MAX_ATTEMPTS
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import CAMPAIGN, FACTS, START, knob, opening

IDLE_S = 20.0


def events(given: Folded, after_s: float = 0.0) -> list[e.Event]:
    actions = decide(given.state, given.now_s + after_s, IDLE_S)
    return [action.event for action in actions if isinstance(action, Append)]


def only(given: Folded, after_s: float = 0.0) -> e.Event:
    found = events(given, after_s)
    assert len(found) == 1
    return found[0]


def test_a_lease_runs_out_once_its_trial_was_at_the_head_for_too_long() -> None:
    given = Folded()
    first, second = given.admit(knob("a")), given.admit(knob("b"))
    one, two = given.grant(first, "fast"), given.grant(second, "fast")
    assert events(given, 119.0) == []
    lost = only(given, 120.0)
    assert isinstance(lost, e.TrialLost)
    assert (lost.trial, lost.epoch) == (one.id, one.epoch)
    given.add(lost, 120.0)
    # The second one came to the head only now.
    assert not any(isinstance(x, e.TrialLost) for x in events(given, 100.0))
    expired = only(given, 121.0)
    assert isinstance(expired, e.TrialLost)
    assert expired.trial == two.id


def test_a_lost_trial_is_granted_again_under_a_new_attempt() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    trial = given.grant(patch, "fast")
    given.add(e.TrialLost(CAMPAIGN, trial.id, trial.epoch, "the engine died"))
    (action,) = decide(given.state, given.now_s, IDLE_S)
    assert isinstance(action, Append)
    assert isinstance(action.event, e.TrialGranted)
    assert action.event.lease.attempt == 2
    assert action.expect == given.state.last_seq


def test_what_a_restarted_host_held_is_lost_at_once() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    trial = given.grant(patch, "fast")
    given.add(e.EngineUp("host0", "cpu", ("fake",)))
    lost = only(given)
    assert isinstance(lost, e.TrialLost)
    assert lost.epoch == trial.epoch
    assert "started again" in lost.reason


def test_a_host_that_lets_leases_run_out_is_left_alone_until_it_speaks() -> None:
    given = Folded(opening(budget_s=3600.0))
    patch = given.admit(knob("a"))
    for _ in range(2):
        trial = given.grant(patch, "fast")
        given.add(e.TrialLost(CAMPAIGN, trial.id, trial.epoch, "no result"), after_s=121.0)
    assert events(given) == []
    given.add(e.EngineReproved("host0", START.id, True))
    assert isinstance(only(given), e.TrialGranted)


def test_leases_do_not_run_out_while_a_campaign_is_paused() -> None:
    given = Folded()
    trial = given.grant(given.admit(knob("a")), "fast")
    given.add(e.CampaignPaused(CAMPAIGN, "by hand", 5.0))
    assert events(given, 1e5) == []
    given.add(e.CampaignResumed(CAMPAIGN, 5.0, 600.0), after_s=1e5)
    assert events(given, 100.0) == []
    lost = only(given, 121.0)
    assert isinstance(lost, e.TrialLost)
    assert lost.trial == trial.id


def test_waiting_candidates_and_unconfirmed_winners_are_rebased_after_a_promotion() -> None:
    given = Folded()
    winner, waiting, past, loser = (given.admit(knob(name)) for name in "abcd")
    given.judge(past, "fast", gain=0.05)
    given.judge(loser, "fast", "slower", -0.1)
    given.promote(winner)
    actions = decide(given.state, given.now_s, IDLE_S)
    assert actions == [Rebase(CAMPAIGN, past.id), Rebase(CAMPAIGN, waiting.id)]


def test_a_few_candidates_are_rebased_at_a_time_past_winners_first() -> None:
    given = Folded()
    winner = given.admit(knob("w"))
    waiting = [given.admit(knob(f"k{i}")) for i in range(30)]
    given.judge(waiting[-1], "fast", gain=0.05)
    given.promote(winner)
    merges = decide(given.state, given.now_s, IDLE_S)
    assert [m.candidate for m in merges if isinstance(m, Rebase)] == [
        waiting[-1].id,
        *(c.id for c in waiting[: stale.AHEAD - 1]),
    ]
    base = given.campaign.releases[1].id
    for index in range(stale.AHEAD):
        heir = knob(f"k{index}", base=base)
        given.admit(msgspec.structs.replace(heir, parents=(waiting[index].id,)))
    assert not [m for m in decide(given.state, given.now_s, IDLE_S) if isinstance(m, Rebase)]


def test_a_candidate_in_flight_is_rebased_only_after_it_ended() -> None:
    given = Folded()
    winner, flying = given.admit(knob("a")), given.admit(knob("b"))
    trial = given.grant(flying, "fast")
    given.promote(winner)
    assert decide(given.state, given.now_s, IDLE_S) == []
    given.add(e.TrialLost(CAMPAIGN, trial.id, trial.epoch, "gone"))
    assert decide(given.state, given.now_s, IDLE_S) == [Rebase(CAMPAIGN, flying.id)]


def test_the_control_arm_is_never_rebased() -> None:
    given = Folded(opening(policy=Policy(control_share=0.5)))
    control = given.admit(knob("r", arm="random"))
    given.promote(given.admit(knob("a")))
    grant = only(given)
    assert isinstance(grant, e.TrialGranted)
    assert grant.lease.side_b.candidate == control.id
    assert grant.lease.side_a.release == START.id


def test_running_trials_finish_before_the_closing_ones_begin() -> None:
    given = Folded(opening(budget_s=300.0))
    given.promote(given.admit(knob("a")))
    later = given.campaign.releases[1].id
    flying = given.admit(knob("b", base=later))
    trial = given.grant(flying, "fast")
    late_s = 250.0
    assert not any(isinstance(x, e.TrialGranted) for x in events(given, late_s))
    given.add(e.TrialLost(CAMPAIGN, trial.id, trial.epoch, "gone"), late_s)
    closing = only(given)
    assert isinstance(closing, e.TrialGranted)
    assert closing.lease.purpose == "final"


def test_both_closing_trials_run_and_then_the_campaign_is_finished() -> None:
    given = Folded(opening(budget_s=300.0, policy=Policy(control_share=0.5)))
    given.promote(given.admit(knob("a")))
    weak, strong = (given.admit(knob(n, arm="random")) for n in ("r1", "r2"))
    given.judge(weak, "fast", gain=0.05)
    given.judge(strong, "fast", gain=0.2)
    final = only(given, 290.0)
    assert isinstance(final, e.TrialGranted)
    assert final.lease.purpose == "final"
    assert final.lease.side_a.release == START.id
    assert final.lease.side_b.release == given.campaign.releases[1].id
    end(given, final, 290.0)
    control = only(given)
    assert isinstance(control, e.TrialGranted)
    assert control.lease.purpose == "random_final"
    assert control.lease.side_b.candidate == strong.id
    end(given, control)
    finished = only(given)
    assert isinstance(finished, e.CampaignFinished)
    assert finished.reason == "the wall-clock budget is spent"


def end(given: Folded, granted: e.TrialGranted, after_s: float = 0.0) -> None:
    epoch = given.add(granted, after_s)
    lease = granted.lease
    verdict = Verdict(lease.trial, lease.side_b.candidate, lease.tier, "faster", "", "0" * 64)
    given.add(e.TrialEnded(CAMPAIGN, epoch, verdict))


def test_a_closing_trial_that_is_lost_every_time_is_named_in_the_last_line() -> None:
    given = Folded(opening(budget_s=300.0))
    given.promote(given.admit(knob("a")))
    given.now_s += 290.0
    for _ in range(MAX_ATTEMPTS):
        granted = only(given)
        assert isinstance(granted, e.TrialGranted)
        epoch = given.add(granted)
        given.add(e.TrialLost(CAMPAIGN, granted.lease.trial, epoch, "the engine died"))
    finished = only(given)
    assert isinstance(finished, e.CampaignFinished)
    assert "final was not measured: the engine died" in finished.reason


def test_a_campaign_without_a_release_says_so_when_it_finishes() -> None:
    given = Folded()
    finished = only(given, 21.0)
    assert isinstance(finished, e.CampaignFinished)
    assert finished.reason.startswith("nothing is left to try")
    assert "no release but the start" in finished.reason


def test_a_campaign_waits_for_a_check_however_long_it_takes() -> None:
    given = Folded()
    given.add(e.CandidateAdmitted(knob("a")))
    assert events(given, 200.0) == []


def test_a_campaign_that_no_host_can_serve_is_refused_in_the_end() -> None:
    given = Folded()
    given.add(e.CampaignOpened(opening_of("lonely")))
    refused = events(given, 700.0)
    assert any(isinstance(x, e.CampaignRefused) and "lonely" in x.campaign for x in refused)


def opening_of(name: str) -> OpenCampaign:
    return msgspec.structs.replace(opening(), campaign=name)


def test_a_fresh_state_owes_a_preparation_a_check_and_a_run() -> None:
    given = Folded()
    unchecked = knob("u")
    given.add(e.CandidateAdmitted(unchecked))
    flying = given.grant(given.admit(knob("a")), "fast")
    commands = {type(o.command): o for o in owed(given.state)}
    assert set(commands) == {CheckCandidate, RunTrial}
    run = commands[RunTrial].command
    assert isinstance(run, RunTrial)
    assert run.lease.epoch == flying.epoch
    assert commands[RunTrial].key == "host0"
    given.add(e.EngineUp("host0", "cpu", ("fake",)))
    assert PrepareTarget in {type(o.command) for o in owed(given.state)}


@pytest.mark.parametrize(("device", "engines"), [("cuda", ("fake",)), ("cpu", ("slim",))])
def test_a_host_of_another_kind_is_not_prepared(device: str, engines: tuple[str, ...]) -> None:
    given = Folded()
    given.add(e.EngineUp("host1", device, engines))
    assert owed(given.state) == []


def test_a_host_that_serves_a_running_campaign_is_not_prepared_for_another() -> None:
    given = Folded()
    given.add(e.CampaignOpened(opening_of("second")))
    assert owed(given.state) == []
    given.add(e.CampaignFinished(CAMPAIGN, "done", 1.0, 1.0))
    assert [o.key for o in owed(given.state)] == ["host0"]
    given.add(e.CampaignReady("second", "host0", FACTS, START, 1.0))
    assert owed(given.state) == []
