"""How far to trust a campaign: quality of both sides, tier against tier, the rules' bound."""

from dataclasses import replace

import msgspec
import pytest

from protos import events as e
from protos.trial import QualityMeasure
from recorded_campaign import CAMPAIGN, finished, paused
from services.cli.closing import rows
from services.report import said
from services.report.page import page
from services.report.record import CampaignRecord, fold
from services.report.summary import summarise

MEASURES = (
    QualityMeasure("perplexity of held-out text", "", 32.8, 32.7, 33.2, 0.013, 0.018, 0.02, 32),
    QualityMeasure("tasks answered", "of all", 0.57, 0.57, 0.4, 0.17, 0.25, 0.10, 60),
)


def record_of(measured: bool = True) -> CampaignRecord:
    events = finished().events
    finals = {r.event.lease.trial for r in events if is_final(r.event)}
    for at, recorded in enumerate(events):
        event = recorded.event
        if measured and isinstance(event, e.TrialEnded) and event.verdict.trial in finals:
            verdict = msgspec.structs.replace(event.verdict, quality=MEASURES)
            changed = msgspec.structs.replace(event, verdict=verdict)
            events[at] = replace(recorded, event=changed)
    return fold(CAMPAIGN, events)


def is_final(event: object) -> bool:
    return isinstance(event, e.TrialGranted) and event.lease.purpose == "final"


def test_both_sides_of_each_quality_measure_are_in_the_summary_the_table_and_the_page():
    recording = finished()
    record = record_of()
    summary = summarise(record)

    assert [(one.start, one.release, one.ok) for one in summary.quality] == [
        (32.7, 33.2, True),
        (0.57, 0.4, False),
    ]
    lines = said.quality(summary)
    assert lines[0].startswith("perplexity of held-out text: 32.7 -> 33.2 (32.8 in float32; ")
    assert lines[1].endswith("NOT WITHIN ITS MARGIN")
    assert ("quality", lines[0]) in rows(summary)
    assert "32.7 -&gt; 33.2" in page(record, summary, recording.blobs)


def test_without_a_closing_trial_quality_is_said_not_to_be_measured():
    assert summarise(fold(CAMPAIGN, paused().events)).quality == ()
    assert "not measured" in said.quality(summarise(record_of(measured=False)))[0]


def test_the_tiers_are_compared_over_all_that_both_measured():
    tiers = summarise(record_of()).tiers

    assert tiers.both == 12  # four fast winners in each of three rounds
    assert tiers.passed == 12
    assert tiers.confirmed == 6
    assert tiers.tau is not None
    assert "missed winners: not known" in " ".join(said.tiers(summarise(record_of())))


def test_the_bound_on_false_promotions_is_the_product_of_the_tiers_alphas():
    found = summarise(record_of()).false_promotions

    assert found is not None
    assert found.candidates == 42
    assert found.each == pytest.approx(0.05**3)
    assert found.expected_at_most == pytest.approx(42 * 0.05**3)
    assert "expected among 42 candidates" in said.false_promotions(summarise(record_of()))
