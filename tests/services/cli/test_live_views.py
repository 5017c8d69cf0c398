import io

import pytest
from rich.console import Console

from protos.messages import Activity, BestSoFar, CampaignStatus
from recorded_campaign import CAMPAIGN, Recording, finished, paused
from services.cli import words
from services.cli.live import PlainView, draw, told
from services.cli.progress import Progress
from services.report.record import CampaignRecord


@pytest.fixture
def progress():
    seen = Progress(CampaignRecord(CAMPAIGN))
    for known in paused().events[:-1]:
        seen.apply(known)
    return seen


def drawn(progress):
    console = Console(file=io.StringIO(), width=100)
    console.print(draw(progress, progress.record.opened_s + 60.0))
    return console.file.getvalue()


def test_the_live_view_shows_engines_verdicts_the_best_and_the_time_left(progress):
    now = Activity("host0", "trial", "t1", "c1", "threads=2", "fast", 3, 24)
    progress.engines["host0"] = now
    best = BestSoFar("c1", "C kernel", "slow", 1.94)
    progress.status = CampaignStatus(CAMPAIGN, "running", waiting=3, best=best)

    text = drawn(progress)

    assert "host0: trial threads=2 (fast), pair 3 of at most 24" in text
    assert "8 faster" in text
    assert "C kernel: 1.940x (slow tier)" in text
    assert "3 waiting" in text
    assert "4 min 00 s" in text
    assert "not_engaged" in text


def test_a_view_of_nothing_yet_is_no_error():
    text = drawn_empty()

    assert "no engine yet" in text
    assert "none yet" in text


def drawn_empty():
    console = Console(file=io.StringIO(), width=80)
    console.print(draw(Progress(CampaignRecord(CAMPAIGN)), 0.0))
    return console.file.getvalue()


def test_the_finishing_state_is_named():
    progress = Progress(CampaignRecord(CAMPAIGN))
    progress.status = CampaignStatus(CAMPAIGN, "finishing")

    assert progress.phase() == "closing measurement: release against start"


def test_plain_lines_tell_what_matters_and_leave_out_the_rest():
    out = io.StringIO()
    view, progress = PlainView(out), Progress(CampaignRecord(CAMPAIGN))
    for known in finished().events:
        progress.apply(known)
        view.event(known, progress)

    lines = out.getvalue().splitlines()
    assert any("the release against the start: faster" in line for line in lines)
    assert any("the best of the random arm against the start" in line for line in lines)
    assert not any("fast:" in line for line in lines)
    assert len(lines) < 30


def test_events_of_others_are_not_told():
    progress = Progress(CampaignRecord("another"))
    verdicts = [told(known, progress) for known in Recording().events]

    assert verdicts == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-3, "0 s"), (59.6, "1 min 00 s"), (245, "4 min 05 s"), (7380, "2 h 03 min")],
)
def test_durations_read_well(seconds, text):
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("output_tok_s", 48.04, "48.0 tok/s"),
        ("ttft_ms_p99", 12.345, "12.35 ms"),
        ("requests_s", 3.0, "3.00 /s"),
    ],
)
def test_metrics_carry_their_units(name, value, text):
    assert words.metric(name, value) == text


def test_a_campaign_over_its_budget_says_by_how_much(progress):
    opened_s = progress.record.opened_s

    assert progress.time_left(opened_s + 300.0) == "0 s"
    assert progress.time_left(opened_s + 372.0).startswith("0 s (over by 1 min 12 s")
