"""What was measured of the engine alone stands in the report, where it was measured."""

import json

from services.report.known import FILE, read, section

MEASURED = {
    "what": "vllm serve, asked by one client over HTTP",
    "model": "smollm2",
    "workload": "chat",
    "output_tok_s": {"default": 200.0, "best_known": 300.5},
    "ratios": {"best_known_over_default": 1.5025},
    "starts": {
        name: [{"start_s": 50.0, "output_tok_s": s, "ttft_ms_p50": 90.0, "tpot_ms_p50": 20.0}]
        for name, s in (("default", 200.0), ("best_known", 300.5))
    },
}


def test_what_the_benchmark_wrote_is_shown(tmp_path):
    (tmp_path / FILE).write_text(json.dumps(MEASURED))

    text = section(read(tmp_path))

    assert "300.5" in text
    assert "best known over default: <b>1.50x</b>" in text


def test_a_run_without_it_has_no_such_section(tmp_path):
    assert read(tmp_path) is None
    assert section(None) == ""


def test_a_file_that_holds_something_else_is_not_shown(tmp_path):
    (tmp_path / FILE).write_text('{"what": 3}')

    assert read(tmp_path) is None
