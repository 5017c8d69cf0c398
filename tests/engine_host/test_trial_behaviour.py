"""Planted patches on real processes: what each leaves in its evidence, the next trial untouched."""

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine_host.block import Quiet
from engine_host.errors import EngineLostError
from engine_host.host import Host
from engine_host.settings import EngineHostSettings
from engine_host.zygotes import Exposure
from protos.codec import decode
from protos.target import Target
from protos.trial import Evidence, Limits, Plan, Side, StopRule
from services.blobs import DirectoryBlobs

MODEL = "fake/model.py"
RULE = StopRule(min_units=3, max_units=3, mode="fixed")
SHORT = Limits(start_s=1.5, prepare_s=1.5, block_s=1.5)
WORK = "        self.work()"
Fake = Any  # the FakeHost of conftest.py


def doing(fake: Fake, code: str) -> Side:
    """A patch that does something in every step."""
    return fake.change(MODEL, WORK, f"        {code}", changed=("fake/model.py:Model.decode",))


async def test_a_release_against_itself_gives_the_pairs_of_the_script(fake: Fake):
    evidence = await fake.run(fake.start)
    assert evidence.failure is None
    assert evidence.rung == "hot"
    assert [(b.pair, b.position) for b in evidence.blocks] == [
        (n, p) for n in range(3) for p in (0, 1)
    ]
    for block in evidence.blocks:
        (request,) = block.requests
        assert len(request.tokens) == len(request.token_ns) == 6
        assert request.finish == "length"
        assert list(request.token_ns) == sorted(request.token_ns)
        assert 0 < request.token_ns[-1] <= block.wall_ns


async def test_both_sides_of_a_release_against_itself_say_the_same(fake: Fake):
    evidence = await fake.run(fake.start)
    said = {(b.pair, b.side): b.requests[0].tokens for b in evidence.blocks}
    assert all(said[pair, "A"] == said[pair, "B"] for pair in range(3))
    assert evidence.grades == ()


async def test_evidence_survives_the_wire(fake: Fake):
    evidence = await fake.run(fake.start)
    assert decode(msgspec.json.encode(evidence), Evidence) == evidence


async def test_the_side_that_the_script_names_runs_first(fake: Fake):
    evidence = await fake.run(fake.start)
    revealed = await fake.judge.reveal(evidence.lease)
    firsts = [block.side for block in evidence.blocks if block.position == 0]
    assert firsts == [pair.first for pair in revealed.script.pairs[:3]]


async def test_the_commitment_comes_before_the_patch_and_the_script_after_it_is_ready(fake: Fake):
    broken = fake.write(MODEL, "raise RuntimeError('no')\n", rung="warm")
    fake.judge.asked.clear()
    evidence = await fake.run(broken)
    assert evidence.failure == "start"
    assert evidence.commitment == "c" * 64
    assert [asked.split()[0] for asked in fake.judge.asked] == ["commit"]
    assert evidence.script is None


async def test_a_thousand_times_the_work_takes_more_processor_time_in_every_pair(fake: Fake):
    heavy = Side(fake.start.release, fake.start.files, {"rounds": 200_000}, {}, "c1", "hot")
    evidence = await fake.run(heavy)
    cpu = {(b.pair, b.side): b.busy_cpu_ns for b in evidence.blocks}
    assert all(cpu[pair, "B"] > cpu[pair, "A"] for pair in range(3))


async def test_a_changed_function_that_is_used_is_engaged(fake: Fake):
    evidence = await fake.run(doing(fake, "spin(self.rounds // 2)"))
    assert evidence.engaged is True
    assert "Model.decode" in evidence.engaged_detail
    assert evidence.rung == "hot"


async def test_code_that_never_runs_is_not_engaged(fake: Fake):
    unused = "def unused():\n    return 1\n\n\ndef pick"
    side = fake.change(MODEL, "def pick", unused, changed=("fake/model.py:unused",))
    evidence = await fake.run(side)
    assert evidence.engaged is False
    assert evidence.failure is None


async def test_a_module_that_nothing_imports_is_not_engaged(fake: Fake):
    side = fake.write(
        "fake/extra.py", "def unused():\n    return 1\n", changed=("fake/extra.py:unused",)
    )
    evidence = await fake.run(side)
    assert evidence.engaged is False
    assert evidence.failure is None
    assert evidence.blocks == ()  # timing would have decided nothing
    assert "imported" in evidence.engaged_detail


async def test_code_that_only_building_an_engine_needs_is_engaged(fake: Fake):
    side = fake.change(
        "fake/engine.py",
        "self.precision = precision",
        "self.precision = str(precision)",
        rung="warm",
        changed=("fake/engine.py:Engine.__init__",),
    )
    evidence = await fake.run(side)
    assert evidence.engaged is True
    assert "built" in evidence.engaged_detail


async def test_a_function_behind_a_wrapper_that_hides_it_is_proved_all_the_same(fake: Fake):
    wrapper = (
        "class Hidden:\n    def __init__(self, inner):\n        self.inner = inner\n\n"
        "    def __call__(self, *arguments):\n        return self.inner(*arguments)\n\n\n"
    )
    source = fake.source(MODEL).replace("def pick(", f"{wrapper}@Hidden\ndef pick(")
    side = fake.write(MODEL, source, rung="warm", changed=("fake/model.py:pick",))
    evidence = await fake.run(side)
    assert evidence.engaged is True
    assert "pick" in evidence.engaged_detail


async def test_functions_that_cannot_be_reached_leave_the_question_open(fake: Fake):
    side = fake.change(MODEL, "def pick", "# nothing\ndef pick", changed=("fake/model.py:no",))
    evidence = await fake.run(side)
    assert evidence.engaged is None
    assert "none of 1" in evidence.engaged_detail


async def test_a_patch_that_cannot_be_hot_goes_warm_and_the_evidence_says_so(fake: Fake):
    side = fake.change("fake/engine.py", "self.precision = precision", "self.precision = 'x'")
    evidence = await fake.run(side)
    assert evidence.rung == "warm"
    assert evidence.failure is None
    assert "constructor" in evidence.reproof


async def test_wrong_tokens_are_graded_as_what_the_reference_would_not_say(fake: Fake):
    side = fake.change(MODEL, "% VOCAB", "// 3 % VOCAB", changed=("fake/model.py:pick",))
    evidence = await fake.run(side)
    assert evidence.failure is None
    assert evidence.grades
    assert not any(grade.same_as_a for grade in evidence.grades)
    assert all(max(grade.gaps) > 0 for grade in evidence.grades)


async def test_fewer_tokens_end_the_trial_with_the_short_output_in_the_evidence(fake: Fake):
    early = 'finish = "length" if sequence.outputs >= 2 else None'
    late = 'finish = "length" if sequence.outputs == sequence.max_tokens else None'
    evidence = await fake.run(fake.change("fake/engine.py", late, early))
    short = [b for b in evidence.blocks if b.side == "B"]
    assert len(evidence.blocks) == 2
    assert len(short[0].requests[0].tokens) == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("__import__('os')._exit(3)", "exit status 3"),
        ("__import__('ctypes').string_at(0)", "SIGSEGV"),
        ("bytearray(20_000_000_000)", "MemoryError"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit", "SystemExit"),
        ("__import__('sys').exit(5)", "SystemExit"),
        ("[0 for _ in iter(int, 1)]", "took more than 1.5 s"),
        ("__import__('time').sleep(600)", "took more than 1.5 s"),
        ("__import__('os').kill(1, 19) or __import__('time').sleep(600)", "took more than 1.5 s"),
        ("[__import__('os').fork() for _ in iter(int, 1)]", "processes"),
        ("recurse = lambda: recurse(); recurse()", "RecursionError"),
    ],
)
async def test_a_patch_that_breaks_is_a_finding_in_time_and_the_next_trial_is_untouched(
    fake: Fake, code: str, said: str
):
    began_s = time.monotonic()
    evidence = await fake.run(doing(fake, code), Plan("fast", RULE, SHORT))
    assert time.monotonic() - began_s < SHORT.block_s + 2.0
    assert evidence.failure in ("start", "block")
    assert said in evidence.detail
    after = await fake.run(fake.start)
    assert after.failure is None
    assert len(after.blocks) == 6
    assert all(grade.same_as_a for grade in after.grades)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("while True:\n    pass", "took more than 1.5 s"),
        ("import os\nos._exit(9)", "exit status 9"),
        ("raise ValueError('no room')", "ValueError: no room (fake/prepare/step.py:2)"),
    ],
)
async def test_preparation_is_bounded_and_its_error_is_named(fake: Fake, body: str, said: str):
    text = "def prepare(engine):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    evidence = await fake.run(fake.write("fake/prepare/step.py", text), Plan("fast", RULE, SHORT))
    assert evidence.failure == "prepare"
    assert said in evidence.detail


async def test_preparation_runs_before_requests_and_once(fake: Fake):
    text = "def prepare(engine):\n    engine.totals['steps'] += 1000\n"
    evidence = await fake.run(fake.write("fake/prepare/step.py", text))
    assert 1000 < evidence.counters["steps"] < 2000


@pytest.mark.parametrize("rung", ["hot", "warm", "cold"])
async def test_a_syntax_error_or_a_missing_import_is_the_patchs_failure(fake: Fake, rung: str):
    evidence = await fake.run(fake.change(MODEL, "import hashlib", "import hash_lib", rung=rung))
    assert evidence.failure == "start"
    assert "hash_lib" in evidence.detail


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"id": sequence.id', '"id": 999', "no open request"),
        ('"tokens": [token]', '"tokens": [token] * 50', "too many tokens"),
        ('"tokens": [token]', '"tokens": [-1]', "outside"),
        ('"tokens": [token]', '"tokens": [99999]', "outside"),
        ('"tokens": [token]', '"tokens": [float("nan")]', "malformed"),
        ('"tokens": [token]', '"tokens": ["x"]', "no integers"),
        ('"tokens": [token]', '"tokens": [True]', "no integers"),
        ('"tokens": [token]', '"tokens": None', "no integers"),
        ('"finish": finish', '"finish": "done"', "unknown finish"),
        ('"finish": finish', '"finish": None', "took more than 1.5 s"),
    ],
)
async def test_outputs_that_make_no_sense_are_the_patchs_failure(
    fake: Fake, old: str, new: str, said: str
):
    side = fake.change("fake/engine.py", old, new)
    evidence = await fake.run(side, Plan("fast", RULE, SHORT))
    assert evidence.failure is not None
    assert said in evidence.detail


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"\xff\xff\xff\xff", "frame of 4294967295 bytes"),
        (b"\x00\x00\x00\x03abc", "malformed"),
        (b"\x00\x00\x00\x02[]", "malformed"),
        (b"\x00\x00\x00\x02{}", "unknown message"),
        (b"\x00\x00\x00\x0c" + b'{"out": {}} ', "no list"),
    ],
)
async def test_garbage_on_the_channel_is_the_patchs_failure(fake: Fake, frame: bytes, said: str):
    write = f"__import__('os').write(__import__('gc') and CHANNEL(), {frame!r})"
    finder = (
        "def CHANNEL():\n    import os, stat\n"
        "    return next(n for n in range(3, 64) if _is_socket(n))\n\n\n"
        "def _is_socket(n):\n    import os, stat\n"
        "    try:\n        return stat.S_ISSOCK(os.fstat(n).st_mode)\n"
        "    except OSError:\n        return False\n\n\n"
    )
    source = fake.source(MODEL).replace(WORK, f"        {write}")
    side = fake.write(MODEL, source.replace("def extend", finder + "def extend"))
    evidence = await fake.run(side, Plan("fast", RULE, SHORT))
    assert evidence.failure is not None
    assert said in evidence.detail


async def test_live_knobs_are_set_in_a_running_engine(fake: Fake):
    side = Side(fake.start.release, fake.start.files, {"rounds": 0}, {}, "c1", "hot")
    assert (await fake.run(side)).rung == "hot"


async def test_a_knob_read_at_the_start_of_an_engine_goes_warm(fake: Fake):
    side = Side(fake.start.release, fake.start.files, {"context": 4000}, {}, "c1", "hot")
    assert (await fake.run(side)).rung == "warm"


async def test_a_knob_out_of_bounds_is_the_candidates_failure(fake: Fake):
    side = Side(fake.start.release, fake.start.files, {"rounds": -5}, {}, "c1", "hot")
    evidence = await fake.run(side)
    assert evidence.failure == "start"
    assert "rounds must lie in" in evidence.detail


async def test_a_request_that_the_engine_refuses_is_a_failure_of_that_request(fake: Fake):
    side = Side(fake.start.release, fake.start.files, {"context": 16}, {}, "c1", "warm")
    fake.judge.output_tokens = 12
    evidence = await fake.run(side)
    (request,) = next(b for b in evidence.blocks if b.side == "B").requests
    assert request.error is not None
    assert "over the context of 16" in request.error


async def test_a_failed_request_ends_the_trial_in_a_void_block_too(fake: Fake, monkeypatch):
    """A block that fails at once is so short that any wait is most of it."""
    side = Side(fake.start.release, fake.start.files, {"context": 16}, {}, "c1", "warm")
    fake.judge.output_tokens = 12
    monkeypatch.setattr(fake.host, "_quiet", Quiet(waited_share=-1.0))
    evidence = await fake.run(side)
    assert len(evidence.blocks) == 2
    assert all(block.void for block in evidence.blocks)


async def test_a_forced_rung_is_kept_to(fake: Fake):
    plan = Plan("fast", RULE, force_rung="cold")
    assert (await fake.run(fake.start, plan)).rung == "cold"


async def test_a_cold_trial_starts_both_sides_anew_for_every_unit(fake: Fake):
    rule = StopRule(min_units=3, max_units=3, mode="fixed")
    plan = Plan("cold", rule, starts=3, pairs_per_start=2)
    evidence = await fake.run(fake.start, plan)
    assert evidence.rung == "cold"
    assert evidence.failure is None
    assert [b.start for b in evidence.blocks if b.position == 0] == [0, 0, 1, 1, 2, 2]
    assert [b.pair for b in evidence.blocks if b.position == 0] == list(range(6))


async def test_a_patch_that_fails_in_a_cold_start_is_a_finding(fake: Fake):
    plan = Plan("cold", RULE, SHORT, starts=3, pairs_per_start=2)
    evidence = await fake.run(doing(fake, "__import__('os')._exit(3)"), plan)
    assert evidence.failure in ("start", "block")
    assert "exit status 3" in evidence.detail


async def test_quality_is_what_each_side_says_of_text_and_serves_in_the_starts_eyes(fake: Fake):
    side = fake.change(MODEL, "% VOCAB", "// 3 % VOCAB", changed=("fake/model.py:pick",))
    evidence = await fake.run(side, Plan("slow", RULE, quality=True))
    assert [q.side for q in evidence.quality] == ["A", "B", "R"]
    a, b, start = evidence.quality
    assert a.tokens == b.tokens == start.tokens > 0
    assert len(a.per_passage_nll) == len(b.per_passage_nll) == len(start.per_passage_nll) >= 2
    assert [len(said) for said in a.outputs] == [len(gaps) for gaps in b.gaps] == [24] * 8
    assert a.per_passage_nll == start.per_passage_nll
    assert max(gap for gaps in a.gaps for gap in gaps) == 0.0
    assert max(gap for gaps in b.gaps for gap in gaps) > 0.0


async def test_a_busy_child_left_by_b_does_not_run_in_as_blocks(fake: Fake):
    code = (
        "hasattr(self, 'left') or (setattr(self, 'left', __import__('os').fork()) or self.left)"
        " or [0 for _ in iter(int, 1)]"
    )
    evidence = await fake.run(doing(fake, code))
    assert evidence.failure is None
    blocks = [b for b in evidence.blocks if b.side == "A"]
    assert all(b.void is None and b.frozen_cpu_ns <= 1_000_000 for b in blocks)


async def test_an_incumbent_is_kept_across_candidates(fake: Fake):
    residency = fake.host.residency("campaign")
    await fake.run(fake.start)
    kept = residency.incumbent(fake.start, Limits())[0].pid
    await fake.run(doing(fake, "pass"))
    assert residency.incumbent(fake.start, Limits())[0].pid == kept


async def test_a_holder_stops_by_itself_when_its_lease_runs_out(fake: Fake):
    with pytest.raises(EngineLostError, match="lease of 0 s ran out"):
        await fake.host.run(fake.lease(fake.start, expires_s=0.0), fake.judge)
    assert (await fake.run(fake.start)).failure is None


async def test_without_confinement_a_trial_runs_only_when_a_setting_says_so(tmp_path: Path):
    blobs = DirectoryBlobs(tmp_path / "blobs")
    host = Host("host-0", tmp_path, blobs, exposure=Exposure(unsafe=True))
    prepared = await host.prepare(Target("fake", "anything"), "campaign")
    residency = host.residency("campaign")
    process = residency.bring(prepared.start_side, "hot", Limits())
    inside = os.readlink(f"/proc/{process.pid}/ns/mnt")
    process.end()
    await host.close()
    assert inside == os.readlink("/proc/self/ns/mnt")
    assert not Exposure().unsafe
    assert not EngineHostSettings().unsafe_no_sandbox
