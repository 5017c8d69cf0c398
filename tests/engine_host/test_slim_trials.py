"""Trials of a real engine on a small real model: every rung, every scope, native code."""

import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from engine_host.block import Quiet
from engine_host.host import Host
from proposer.playbook.edit import guard
from protos.target import Objective, Target, Workload
from protos.trial import Evidence, Lease, Plan, Side, StopRule
from services.blobs import DirectoryBlobs

TARGET = Target("slim", "seed:small")
pytestmark = pytest.mark.asyncio(loop_scope="module")
PLAN = Plan("fast", StopRule(min_units=2, max_units=2, mode="fixed"))


class Slim:
    """A prepared host and short ways to run candidates on it."""

    def __init__(self, host: Host, start: Side, blobs: DirectoryBlobs, judge: object) -> None:
        self.host, self.start, self.blobs, self.judge = host, start, blobs, judge
        self.epoch = 0

    def change(self, path: str, old: str, new: str, rung: str = "hot", *changed: str) -> Side:
        source = self.blobs.get(self.start.files[path]).decode()
        assert old in source
        files = {**self.start.files, path: self.blobs.put(source.replace(old, new).encode())}
        return Side(self.start.release, files, {}, {}, "c1", rung, (path,), changed)

    async def run(self, side: Side, plan: Plan = PLAN) -> Evidence:
        self.epoch += 1
        lease = Lease(
            f"t{self.epoch}",
            "campaign",
            "host-0",
            1,
            plan.tier,
            self.start,
            side,
            TARGET,
            Workload("single"),
            Objective("output_tok_s"),
            plan,
            epoch=self.epoch,
        )
        return await self.host.run(lease, self.judge)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def slim_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slim")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slim(slim_home: Path, seeded_judge: type) -> AsyncIterator[Slim]:
    blobs = DirectoryBlobs(slim_home / "blobs")
    host = Host("host-0", slim_home, blobs, Quiet(waited_share=2.0, steal_share=1e9))
    prepared = await host.prepare(TARGET, "campaign")
    yield Slim(host, prepared.start_side, blobs, seeded_judge(blobs, pairs=4))
    await host.close()


def same_tokens(evidence: Evidence) -> bool:
    said = {(b.pair, b.side): [r.tokens for r in b.requests] for b in evidence.blocks}
    return all(tokens == said[pair, "A"] for (pair, _), tokens in said.items())


PLANNED = ("slim/scheduler.py", "    def busy(self)", "    def idle(self):\n        return 1\n\n")


@pytest.mark.parametrize("rung", ["hot", "warm", "cold"])
async def test_a_real_engine_says_the_same_on_every_rung(slim: Slim, rung: str):
    path, old, added = PLANNED
    evidence = await slim.run(slim.change(path, old, added + old, rung))
    assert evidence.failure is None, evidence.detail
    assert evidence.rung == rung
    assert len(evidence.blocks) == 4
    assert same_tokens(evidence)


async def test_a_changed_scheduler_function_is_hot_and_engaged(slim: Slim):
    side = slim.change(
        "slim/scheduler.py",
        "def busy(self) -> bool:",
        "def busy(self) -> bool:\n        _ = 1",
        "hot",
        "slim/scheduler.py:Scheduler.busy",
    )
    evidence = await slim.run(side)
    assert (evidence.failure, evidence.rung, evidence.engaged) == (None, "hot", True)
    assert same_tokens(evidence)


async def test_a_changed_model_function_is_hot_and_its_wrong_tokens_are_graded(slim: Slim):
    side = slim.change(
        "slim/sampling.py", "argmax", "argmin", "hot", "slim/sampling.py:choose_tokens"
    )
    evidence = await slim.run(side)
    assert (evidence.failure, evidence.rung, evidence.engaged) == (None, "hot", True)
    assert evidence.grades
    assert all(max(grade.gaps) > 1.0 for grade in evidence.grades)


async def test_a_changed_constructor_goes_warm_by_itself(slim: Slim):
    side = slim.change("slim/engine.py", "self._steps = 0", "self._steps = 5")
    evidence = await slim.run(side)
    assert (evidence.failure, evidence.rung) == (None, "warm")
    assert "constructor" in evidence.reproof


async def test_a_function_that_only_building_calls_goes_warm_by_itself(slim: Slim):
    side = slim.change("slim/space.py", "def with_defaults(", "def with_defaults(  # changed\n    ")
    assert (await slim.run(side)).rung == "hot"  # a comment: nothing changed
    source = slim.blobs.get(slim.start.files["slim/space.py"]).decode()
    body = source.partition("def with_defaults(")[2].partition("\n    ")[2]
    first = next(line for line in body.splitlines() if line.strip().startswith("return"))
    side = slim.change("slim/space.py", first, f"    _ = 1\n{first}")
    assert (await slim.run(side)).rung == "warm"


async def test_live_knobs_are_hot_and_others_warm(slim: Slim):
    for knobs, rung in (({"max_num_seqs": 3}, "hot"), ({"block_size": 32}, "warm")):
        side = Side(slim.start.release, slim.start.files, knobs, {}, "c1", "hot")
        evidence = await slim.run(side)
        assert (evidence.failure, evidence.rung) == (None, rung), evidence.detail
        assert same_tokens(evidence)


@pytest.fixture
def answer_library(tmp_path: Path) -> bytes:
    """A shared library with an OpenMP region, built like a candidate's."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "a C compiler is needed: install gcc"
    source, built = tmp_path / "answer.c", tmp_path / "libanswer.so"
    source.write_text(
        "int answer(void) {\n  int n = 0;\n#pragma omp parallel for reduction(+ : n)\n"
        "  for (int i = 0; i < 42; i++) n++;\n  return n;\n}\n"
    )
    flags = ["-O2", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(built)], check=True)
    return built.read_bytes()


def with_library(slim: Slim, library: bytes, rung: str) -> Side:
    code = (
        "def busy(self) -> bool:\n        from .native import library\n"
        "        assert library('answer').answer() == 42"
    )
    plain = slim.change("slim/scheduler.py", "def busy(self) -> bool:", code, rung)
    libraries = {"answer": slim.blobs.put(library)}
    return Side(plain.release, plain.files, {}, libraries, "c1", rung, plain.delta)


@pytest.mark.parametrize("rung", ["hot", "warm", "cold"])
async def test_native_code_is_loaded_from_a_library_of_the_trials_own(
    slim: Slim, answer_library: bytes, rung: str
):
    evidence = await slim.run(with_library(slim, answer_library, rung))
    assert (evidence.failure, evidence.rung) == (None, rung), evidence.detail
    assert same_tokens(evidence)


async def test_a_promoted_release_with_native_code_serves_as_the_incumbent(
    slim: Slim, answer_library: bytes
):
    patched = with_library(slim, answer_library, "hot")
    start, slim.start = slim.start, Side("r1", patched.files, {}, patched.libraries)
    try:
        evidence = await slim.run(slim.start)
        against_start = await slim.run(start)
    finally:
        slim.start = start
    assert evidence.failure is None, evidence.detail
    assert same_tokens(evidence)
    assert same_tokens(against_start)


IMPORTS = "import builtins, os, random, torch\nimport torch.nn.functional as F\n"
# A way to leave something behind for the next candidate, and what would see it there.
POISONS = {
    "globals": ("builtins.poisoned = 1", "assert not hasattr(builtins, 'poisoned')"),
    "thread count": ("torch.set_num_threads(7)", "assert torch.get_num_threads() != 7"),
    "default dtype": (
        "torch.set_default_dtype(torch.float64)",
        "assert torch.get_default_dtype() is not torch.float64",
    ),
    "random state": ("torch.manual_seed(1234)", "assert torch.initial_seed() != 1234"),
    "monkey-patch": ("F.silu = None", "assert F.silu is not None"),
    "environment": ("os.environ['POISONED'] = '1'", "assert 'POISONED' not in os.environ"),
    "processors": (
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nbuiltins.poisoned = 1",
        "assert not hasattr(builtins, 'poisoned')\n"
        "assert os.sched_getaffinity(0) == os.sched_getaffinity(1)",
    ),
    "shared memory": (
        "open('/dev/shm/poisoned', 'w').close()",
        "assert not os.path.exists('/dev/shm/poisoned')",
    ),
    "leftover file": (
        "open('/tmp/poisoned', 'w').close()",
        "assert not os.path.exists('/tmp/poisoned')",
    ),
    "cache on disk": (
        "open(os.path.join(os.path.dirname(__file__), 'poisoned.py'), 'w').close()",
        "assert not os.path.exists(os.path.join(os.path.dirname(__file__), 'poisoned.py'))",
    ),
}


def planning(slim: Slim, code: str, path: str = "slim/scheduler.py", at: str = "Scheduler.plan"):
    """A candidate that runs `code` in every step."""
    source = slim.blobs.get(slim.start.files[path]).decode()
    text = guard(source, at, IMPORTS + code)
    files = {**slim.start.files, path: slim.blobs.put(text.encode())}
    return Side(slim.start.release, files, {}, {}, "c1", "hot", (path,), (f"{path}:{at}",))


@pytest.mark.parametrize("way", POISONS)
async def test_what_a_candidate_leaves_behind_is_not_there_for_the_next(slim: Slim, way: str):
    poison, look = POISONS[way]
    both = await slim.run(planning(slim, f"{poison}\n{look}"))
    assert both.failure is not None, "the look sees nothing, or the poison is none"
    await slim.run(planning(slim, poison))
    after = await slim.run(planning(slim, look))
    assert after.failure is None, after.detail
    assert same_tokens(after)
    assert set((await slim.host.reprove()).values()) == {""}


async def test_weights_that_a_candidate_writes_to_are_its_own(slim: Slim):
    spoiling = planning(slim, "self.output.zero_()", "slim/model.py", "Model.logits")
    spoilt = await slim.run(spoiling)
    assert spoilt.failure is not None or not same_tokens(spoilt)
    after = await slim.run(planning(slim, "pass"))
    assert after.failure is None
    assert same_tokens(after)
    assert set((await slim.host.reprove()).values()) == {""}
