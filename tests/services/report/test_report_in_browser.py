"""The report in a real headless Chromium, on a wide window and on a phone's."""

import json
import shutil
import subprocess

import pytest

from recorded_campaign import CAMPAIGN, finished
from services.report.page import page
from services.report.record import fold
from services.report.summary import summarise

pytestmark = pytest.mark.browser
PROBE = """<script>
addEventListener("load", () => {
  const shown = [...document.querySelectorAll("figure svg")].map(s => s.getBoundingClientRect());
  document.body.dataset.probe = JSON.stringify({
    gain: document.querySelector("#gain").textContent,
    drawn: shown.filter(box => box.width > 200 && box.height > 100).length,
    overflow: document.documentElement.scrollWidth - innerWidth,
    rows: document.querySelectorAll("#candidates tbody tr").length,
    page: getComputedStyle(document.body).backgroundColor,
  });
});
</script>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    recording = finished()
    record = fold(CAMPAIGN, recording.events)
    file = tmp_path_factory.mktemp("report") / "report.html"
    text = page(record, summarise(record), recording.blobs)
    file.write_text(text.replace("</body>", PROBE + "</body>"))
    return file


def probe(report, width, *more):
    browser = shutil.which("chromium")
    assert browser, "chromium is not installed"
    dumped = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={report.parent / 'profile'}",
            f"--window-size={width},900",
            *more,
            "--dump-dom",
            report.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    ).stdout
    found = dumped.split('data-probe="', 1)[1].split('"', 1)[0]
    return json.loads(found.replace("&quot;", '"'))


@pytest.mark.parametrize("width", [1200, 500])
def test_the_page_is_drawn_and_never_wider_than_its_window(report, width):
    seen = probe(report, width)

    assert seen["gain"] == "2.33x"
    assert seen["drawn"] >= 5
    assert seen["overflow"] <= 0
    assert seen["rows"] > 45


def test_the_page_is_dark_where_the_person_wants_it_dark(report):
    light = probe(report, 900, "--blink-settings=preferredColorScheme=1")
    dark = probe(report, 900, "--blink-settings=preferredColorScheme=0")

    assert light["page"] == "rgb(251, 250, 248)"
    assert dark["page"] == "rgb(20, 20, 19)"
