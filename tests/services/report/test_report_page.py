import re
from html.parser import HTMLParser

import msgspec
import pytest

from protos import events as e
from recorded_campaign import CAMPAIGN, Recording, finished, paused
from services.blobs import MemoryBlobs
from services.report.page import page
from services.report.record import fold
from services.report.summary import summarise


def page_of(recording, blobs=None):
    record = fold(CAMPAIGN, recording.events)
    return page(record, summarise(record), blobs or recording.blobs)


@pytest.fixture(scope="module")
def text():
    return page_of(finished())


class Structure(HTMLParser):
    """Ids, rows and what is open at the end."""

    def __init__(self):
        super().__init__()
        self.ids, self.rows, self.figures = [], 0, 0

    def handle_starttag(self, tag, attrs):
        self.rows += tag == "tr"
        self.figures += tag == "figure"
        self.ids += [value for name, value in attrs if name == "id"]


def test_the_page_loads_nothing_from_anywhere(text):
    fetched = re.findall(r"""(?:src|href)=["']([^"'#][^"']*)""", text)
    urls = [url for url in re.findall(r"url\(([^)]*)\)", text) if not url.startswith("#")]

    assert fetched == []
    assert urls == []
    assert "<script" not in text


def test_losses_stand_beside_wins(text):
    for word in ("slower", "incorrect", "not engaged", "no gain", "invalid"):
        assert f"</i>{word}" in text
    assert "token loop in Python" in text
    assert "line 3: invalid syntax" in text


def test_the_page_has_the_figures_and_no_id_twice(text):
    structure = Structure()
    structure.feed(text)

    assert structure.figures >= 5
    assert len(structure.ids) == len(set(structure.ids))
    assert structure.rows > 45


def test_releases_show_their_diffs(text):
    assert "Release 2: C kernel: whole decode step" in text
    assert '<span class="del">-        for layer in self.layers:' in text
    assert "+++ b/slim/csrc/step.c" in text


def test_figures_take_their_colours_from_the_page(text):
    assert "var(--ink)" in text
    assert "var(--faster)" in text
    assert "#0404" not in text
    assert "#0101" not in text


def test_a_paused_campaign_prints_no_gain():
    text = page_of(paused())

    assert "No gain measured" in text
    assert 'id="gain"' not in text


def test_a_campaign_without_a_verdict_still_has_a_page():
    recording = Recording()
    recording.open()

    text = page_of(recording)

    assert "No verdict yet" in text
    assert "Nothing to draw" in text


def test_attempts_without_a_verdict_are_said():
    recording = Recording()
    recording.open()
    lease = recording.lease(None, recording.start, "fast", "")
    epoch = recording.add("trial", lease.trial, e.TrialGranted(lease))
    lost = e.TrialLost(CAMPAIGN, lease.trial, epoch, "the host went away")
    recording.add("trial", lease.trial, lost)

    assert "1 attempts ended without a verdict: the host went away" in page_of(recording)


def test_lost_evidence_leaves_gaps_and_no_failure():
    recording = finished()

    text = page_of(recording, MemoryBlobs())

    assert "2.3" in text
    assert "Every candidate" in text


def test_names_from_candidates_cannot_become_markup():
    recording = Recording()
    recording.open()
    candidate = recording.candidate(0, recording.start)
    evil = msgspec.structs.replace(candidate, label="<script>alert(1)</script>")
    recording.admit(evil)

    assert "<script>" not in page_of(recording)
