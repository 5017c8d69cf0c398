import json

import msgspec

from recorded_campaign import CAMPAIGN, Recording
from services.blobs import MemoryBlobs
from services.report.change import candidate_diff, diff, knob_lines
from services.report.evidence import numbers, pair_ratios, read_evidence
from services.report.record import fold
from services.report.spans import processes, spans_of, tree


def span(name, process, span_id, parent, start_ns, trace="t1", status="ok"):
    return {
        "name": name,
        "trace_id": trace,
        "span_id": span_id,
        "parent_id": parent,
        "service": process,
        "pid": 7,
        "start_ns": start_ns,
        "duration_ns": 1000,
        "status": status,
        "reason": None,
    }


def test_a_trace_joins_the_files_of_every_process(tmp_path):
    (tmp_path / "scheduler-7.jsonl").write_text(
        json.dumps(span("admit", "scheduler", "b", "a", 20)) + "\n{half a li"
    )
    (tmp_path / "proposer-7.jsonl").write_text(
        json.dumps(span("propose", "proposer", "a", None, 10))
        + "\n"
        + json.dumps(span("other", "proposer", "z", None, 5, trace="t2"))
        + "\n"
    )

    spans = spans_of(tmp_path, ["t1"])

    assert [(depth, s.name) for depth, s in tree(spans)] == [(0, "propose"), (1, "admit")]
    assert processes(spans) == ["proposer[7]", "scheduler[7]"]


def test_a_span_whose_parent_was_lost_stands_at_the_top(tmp_path):
    (tmp_path / "a-7.jsonl").write_text(
        json.dumps(span("orphan", "a", "b", "gone", 1, status="error")) + "\n"
    )

    spans = spans_of(tmp_path, ["t1"])

    assert tree(spans) == [(0, spans[0])]
    assert spans[0].failed == "failed"


def test_a_diff_shows_changed_new_and_deleted_files():
    blobs = MemoryBlobs()
    one, two = blobs.put(b"a\nb\n"), blobs.put(b"a\nc\n")

    lines = diff({"m.py": one, "old.py": one}, {"m.py": two, "new.py": two}, blobs)

    assert "-b" in lines
    assert "+c" in lines
    assert "--- /dev/null" in lines
    assert "+++ /dev/null" in lines


def test_a_candidate_that_deletes_a_file_shows_it_gone():
    recording = Recording()
    candidate = msgspec.structs.replace(
        recording.candidate(0, recording.start), files={"slim/model.py": None}
    )

    lines = candidate_diff(candidate, recording.start, recording.blobs)

    assert "-class Model:" in lines


def test_a_lost_blob_is_said_in_the_diff():
    lines = diff({}, {"m.py": "0" * 64}, MemoryBlobs())

    assert any("(" in line for line in lines if line.startswith("+"))


def test_only_knobs_that_differ_are_shown():
    assert knob_lines({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": True}) == [
        "b: 2 -> 3",
        "c: default -> True",
    ]


def test_pair_ratios_come_from_the_raw_samples():
    recording = Recording()
    recording.open()
    candidate = recording.candidate(0, recording.start)
    recording.admit(candidate)
    recording.judge(candidate, recording.start, "fast", "faster", 0.5)
    verdict = fold(CAMPAIGN, recording.events).judged()[0].verdict
    evidence = read_evidence(recording.blobs, verdict)

    ratios = [pair.ratio for pair in pair_ratios(evidence)]

    assert min(ratios) <= verdict.interval.estimate <= max(ratios)
    assert any("6 counted, 0 void" in line for line in numbers(evidence))


def test_damaged_evidence_is_none():
    recording = Recording()
    recording.open()
    candidate = recording.candidate(0, recording.start)
    recording.judge(candidate, recording.start, "fast", "faster", 0.5)
    verdict = fold(CAMPAIGN, recording.events).judged()[0].verdict

    assert read_evidence(MemoryBlobs(), verdict) is None
