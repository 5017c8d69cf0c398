"""Whole trials on vLLM: each rung, what bad patches become, and memory that stays where it was."""

import asyncio
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine_host import processes
from engine_host.block import Quiet
from engine_host.host import Host
from engine_host.targets import Prepared
from protos.target import Objective, Target, Workload
from protos.trial import Evidence, Lease, Limits, Plan, Side, StopRule
from services.blobs import DirectoryBlobs

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

VLLM = Target("vllm", "smollm2")
ANY_NOISE = Quiet(waited_share=2.0, steal_share=1e9)
PLAN = Plan("fast", StopRule(min_units=3, max_units=3, mode="fixed"), Limits(start_s=60.0))
SCHEDULER = "vllm/v1/core/sched/scheduler.py"
SAMPLER = "vllm/v1/sample/sampler.py"
LLAMA = "vllm/model_executor/models/llama.py"
STEP = "        self.current_step += 1\n        # NOTE(woosuk)"
DOWN = "        x, _ = self.down_proj(x)\n        return x\n"
SEQS = "        self.max_num_running_reqs = self.scheduler_config.max_num_seqs\n"
EPSILON = "_SAMPLING_EPS = 1e-5"


@dataclass
class Up:
    """A host with vLLM's engines of one mode up."""

    host: Host
    prepared: Prepared
    blobs: DirectoryBlobs
    judge: Any
    runs: int = 0

    @property
    def start(self) -> Side:
        return self.prepared.start_side

    def change(self, path: str, old: str, new: str, *changed: str) -> Side:
        text = self.blobs.get(self.start.files[path]).decode()
        assert text.count(old) == 1
        files = {**self.start.files, path: self.blobs.put(text.replace(old, new).encode())}
        named = tuple(f"{path}:{name}" for name in changed)
        return self._side(files, dict(self.start.knobs), (path,), named)

    def knobs(self, **knobs: Any) -> Side:
        return self._side(dict(self.start.files), {**self.start.knobs, **knobs}, (), ())

    def _side(
        self, files: Any, knobs: Any, delta: tuple[str, ...], changed: tuple[str, ...]
    ) -> Side:
        return Side(self.start.release, files, knobs, {}, "c1", "hot", delta, changed)

    def run(self, side: Side) -> Evidence:
        self.runs += 1
        number, workload = self.runs, Workload("single")
        names = (f"t{number}", "campaign", self.host.name, 1, "fast")
        objective = Objective("output_tok_s")
        lease = Lease(*names, self.start, side, VLLM, workload, objective, PLAN, epoch=number)
        return asyncio.run(self.host.run(lease, self.judge))

    def resident_bytes(self) -> dict[str, int]:
        """Of each engine that is kept up, with all its processes."""
        residency = self.host.residency("campaign")
        up = {**residency.residents(), "bare": residency.bare()}
        return {
            name: processes.resident_bytes(processes.tree(one.pid)) for name, one in up.items()
        } | {"host": processes.resident_bytes([os.getpid()])}


def bring_up(judge: Any, mode: str) -> Iterator[Up]:
    with tempfile.TemporaryDirectory(prefix="perpetune-") as folder:
        os.chmod(folder, 0o755)
        home = Path(folder)
        blobs = DirectoryBlobs(home / "blobs")
        host = Host("host-0", home, blobs, ANY_NOISE)
        prepared = asyncio.run(host.prepare(VLLM, "campaign", {"mode": mode}))
        yield Up(host, prepared, blobs, judge(blobs))
        asyncio.run(host.close())


@pytest.fixture(scope="module")
def eager(seeded_judge: Any) -> Iterator[Up]:
    yield from bring_up(seeded_judge, "eager")


@pytest.fixture(scope="module")
def compiled(seeded_judge: Any) -> Iterator[Up]:
    yield from bring_up(seeded_judge, "compiled")


def neutral(text: str) -> str:
    first, _, rest = text.partition("\n")
    return f"{first}\n        unused = 1\n{rest}"


def tokens(evidence: Evidence, side: str) -> list[tuple[int, ...]]:
    blocks = [block for block in evidence.blocks if block.side == side]
    return [sample.tokens for block in blocks for sample in block.requests]


def assert_neutral(evidence: Evidence, rung: str) -> None:
    assert evidence.failure is None, evidence.detail
    assert evidence.rung == rung
    assert tokens(evidence, "A") == tokens(evidence, "B")
    assert all(sample for sample in tokens(evidence, "A"))


def test_a_change_in_the_serving_loop_is_hot_and_proved(eager: Up):
    evidence = eager.run(
        eager.change(SCHEDULER, STEP, neutral(STEP), "Scheduler.schedule"),
    )
    assert_neutral(evidence, "hot")
    assert evidence.engaged


def test_an_eager_model_function_is_hot_and_proved(eager: Up):
    evidence = eager.run(eager.change(LLAMA, DOWN, neutral(DOWN), "LlamaMLP.forward"))
    assert_neutral(evidence, "hot")
    assert evidence.engaged


def test_other_outputs_are_scored_by_the_reference(eager: Up):
    broken = DOWN.replace("(x)", "(x * 0)")
    evidence = eager.run(eager.change(LLAMA, DOWN, broken, "LlamaMLP.forward"))
    assert evidence.failure is None, evidence.detail
    assert evidence.grades
    assert max(gap for grade in evidence.grades for gap in grade.gaps) > 1.0


def test_a_constructor_and_an_init_knob_are_warm(eager: Up):
    changed = SEQS.replace("= self.", "= 0 + self.")
    assert_neutral(eager.run(eager.change(SCHEDULER, SEQS, changed)), "warm")
    assert_neutral(eager.run(eager.knobs(prefix_caching=False)), "warm")


def test_module_level_code_is_cold(eager: Up):
    assert_neutral(eager.run(eager.change(SAMPLER, EPSILON, "_SAMPLING_EPS = 1.0e-6")), "cold")


@pytest.mark.parametrize(
    ("path", "old", "new", "line"),
    [
        (SAMPLER, EPSILON, "_SAMPLING_EPS = no_such_name", "NameError: .*no_such_name"),
        (SCHEDULER, SEQS, SEQS.replace("max_num_seqs", "no_such"), "AttributeError: .*no_such"),
        (SCHEDULER, STEP, STEP.replace("current_step", "no_such"), "AttributeError: .*no_such"),
    ],
    ids=["import", "engine start", "scheduling"],
)
def test_a_patch_that_breaks_something_fails_with_its_own_error_line(
    eager: Up, path: str, old: str, new: str, line: str
):
    evidence = eager.run(eager.change(path, old, new))
    assert evidence.failure in ("start", "block")
    assert evidence.detail is not None
    assert re.search(line, evidence.detail)
    assert "\n" not in evidence.detail


def test_memory_is_what_it_was_after_ten_trials(eager: Up):
    sides = [
        eager.change(SCHEDULER, STEP, neutral(STEP), "Scheduler.schedule"),
        eager.knobs(prefix_caching=False),
    ]
    for side in sides:  # what is made once is made now: side A, the scorer
        eager.run(side)
    before = eager.resident_bytes()
    for number in range(10):
        assert eager.run(sides[number % 2]).failure is None
    after = eager.resident_bytes()
    assert after.keys() == before.keys()
    for name, amount in before.items():
        assert abs(after[name] - amount) <= 0.05 * amount, name


def test_compiled_model_code_goes_warm_and_the_serving_loop_stays_hot(compiled: Up):
    loop = compiled.change(SCHEDULER, STEP, neutral(STEP), "Scheduler.schedule")
    assert_neutral(compiled.run(loop), "hot")
    evidence = compiled.run(compiled.change(LLAMA, DOWN, neutral(DOWN)))
    assert evidence.failure is None, evidence.detail
    assert evidence.rung == "warm"
    assert "hot refused" in (evidence.reproof or "")
