"""Spans of several processes join one trace."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from services import telemetry


@pytest.fixture
def traces(tmp_path):
    telemetry.setup("parent", tmp_path)
    yield tmp_path
    telemetry.shutdown()


def spans_in(folder):
    return [
        json.loads(line)
        for file in folder.glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]


def test_a_trace_joins_two_processes(traces):
    script = (
        "import json, pathlib, sys\n"
        "from services import telemetry\n"
        "telemetry.setup('child', pathlib.Path(sys.argv[1]))\n"
        "with telemetry.span('inner', parent=telemetry.extract(json.loads(sys.argv[2]))):\n"
        "    pass\n"
        "telemetry.shutdown()\n"
    )
    with telemetry.span("outer", dish="soup"):
        headers = json.dumps(telemetry.inject())
        subprocess.run([sys.executable, "-c", script, str(traces), headers], check=True, timeout=60)

    outer, inner = sorted(spans_in(traces), key=lambda span: span["name"], reverse=True)
    assert (outer["name"], inner["name"]) == ("outer", "inner")
    assert inner["trace_id"] == outer["trace_id"]
    assert inner["parent_id"] == outer["span_id"]
    assert outer["pid"] == os.getpid() != inner["pid"]
    assert (outer["service"], inner["service"]) == ("parent", "child")
    assert outer["attributes"] == {"dish": "soup"}
    assert outer["duration_ns"] >= inner["duration_ns"] > 0


def test_a_failed_span_says_why_and_lets_the_exception_go_on(traces):
    with pytest.raises(KeyError), telemetry.span("failing"):
        raise KeyError("salt")
    (span,) = spans_in(traces)
    assert span["status"] == "error"
    assert "salt" in span["reason"]


def test_a_span_is_in_the_file_as_soon_as_it_ends(traces):
    with telemetry.span("first"):
        pass
    assert [span["name"] for span in spans_in(traces)] == ["first"]


class _Collector(BaseHTTPRequestHandler):
    got: ClassVar[list[str]] = []

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        return


def test_spans_also_go_to_an_otlp_endpoint_when_one_is_set(tmp_path, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}"
        )
        telemetry.setup("sender", tmp_path)
        with telemetry.span("sent"):
            pass
        telemetry.shutdown()
        server.shutdown()
        serving.join()
    assert _Collector.got == ["/v1/traces"]
    assert [span["name"] for span in spans_in(tmp_path)] == ["sent"]


def test_without_set_up_nothing_is_recorded_and_nothing_breaks():
    with telemetry.span("nothing"):
        assert telemetry.trace_id() is None
        assert telemetry.inject() == {}


def test_headers_from_elsewhere_that_make_no_sense_start_a_new_trace(traces):
    with telemetry.span("a", parent=telemetry.extract({"traceparent": "rubbish"})):
        assert telemetry.trace_id() is not None
    assert telemetry.trace_id_of({"traceparent": "rubbish"}) is None
    assert telemetry.trace_id_of(None) is None
