from protos import events as e
from recorded_campaign import CAMPAIGN, Recording, finished, paused
from services.report.record import FINAL, RANDOM_FINAL, fold


def test_the_record_counts_every_verdict_and_each_failed_check():
    record = fold(CAMPAIGN, finished().events)

    counts = record.verdict_counts()

    assert sum(counts.values()) == len(record.judged()) + 1
    assert counts["incorrect"] == 3
    assert counts["not_engaged"] == 3
    assert counts["invalid"] == 3 + 1


def test_a_gain_comes_only_from_the_closing_trial():
    recording = finished()
    record = fold(CAMPAIGN, recording.events)
    searching = fold(CAMPAIGN, paused().events)

    assert record.closing(FINAL).lease.purpose == "final"
    assert record.closing(RANDOM_FINAL).lease.purpose == "random_final"
    assert searching.closing(FINAL) is None
    assert any(t.verdict.word == "faster" for t in searching.judged())


def test_a_voided_trial_counts_no_more_and_says_why():
    recording = paused()
    whole = fold(CAMPAIGN, recording.events)
    trial = whole.judged()[0].lease.trial
    recording.add("trial", trial, e.TrialVoided(CAMPAIGN, trial, "weights changed"))

    record = fold(CAMPAIGN, recording.events)

    assert len(record.judged()) == len(whole.judged()) - 1
    assert record.trials[trial].void_reason == "weights changed"


def test_spend_goes_on_from_where_a_paused_campaign_stood():
    recording = paused()
    spent = fold(CAMPAIGN, recording.events).wall_s
    recording.add("campaign", CAMPAIGN, e.CampaignResumed(CAMPAIGN, spent, 600.0), after_s=9_000.0)

    record = fold(CAMPAIGN, recording.events)

    assert record.state == "running"
    assert record.budget_s == 600.0
    assert record.spent_s(record.last_s + 10.0) == spent + 10.0


def test_events_of_another_campaign_change_nothing():
    recording = finished()

    record = fold("another", recording.events)

    assert record.state == "unknown"
    assert not record.trials
    assert not record.rebuilds


def test_a_lost_trial_is_no_verdict():
    recording = Recording()
    recording.open()
    lease = recording.lease(None, recording.start, "fast", "")
    epoch = recording.add("trial", lease.trial, e.TrialGranted(lease))
    lost = e.TrialLost(CAMPAIGN, lease.trial, epoch, "the host went away")
    recording.add("trial", lease.trial, lost)

    record = fold(CAMPAIGN, recording.events)

    assert record.judged() == []
    assert record.trials[lease.trial].lost == ["the host went away"]


def test_releases_hold_the_start_and_every_promotion_once():
    recording = finished()
    promoted = next(k for k in recording.events if isinstance(k.event, e.ReleasePromoted))
    recording.add("release", promoted.id, promoted.event)

    record = fold(CAMPAIGN, recording.events)

    assert [known.release.number for known in record.releases] == [0, 1, 2]
    assert record.incumbent().number == 2
