"""Real engine processes of the fake engine: one prepared host a module, quick to start."""

import os
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine_host.block import Quiet
from engine_host.host import Host
from engine_host.judge_port import Revealed
from engine_host.residency import Residency
from engine_host.strategies import ForkStrategy
from engine_host.targets import Prepared, prepare_target
from evaluator.quality_set import quality_items
from protos.target import Objective, Target, Workload
from protos.trial import Evidence, Lease, PairScript, Plan, Request, Script, Side, StopRule
from services.blobs import DirectoryBlobs

FAKE = Target("fake", "anything")
ANY_NOISE = Quiet(waited_share=2.0, steal_share=1e9)  # no test is decided by how busy a machine is


@dataclass
class SeededJudge:
    """A judge port whose scripts follow from a seed; it notes in which order it was asked."""

    blobs: DirectoryBlobs
    seed: int = 7
    pairs: int = 6
    output_tokens: int = 6
    asked: list[str] = field(default_factory=list)

    async def commit(self, trial: str, epoch: int) -> str:
        self.asked.append(f"commit {trial} {epoch}")
        return "c" * 64

    async def reveal(self, lease: Lease) -> Revealed:
        self.asked.append(f"reveal {lease.trial}")
        rng = random.Random(self.seed)
        pairs = []
        for pair in range(self.pairs):
            prompt = tuple(rng.randrange(1, 500) for _ in range(8))
            request = Request(pair + 1, prompt, self.output_tokens)
            first = "A" if rng.random() < 0.5 else "B"
            pairs.append(PairScript(first, (request,)))
        items = quality_items(None, Path()) if lease.plan.quality else ()
        script = Script(lease.trial, str(self.seed), tuple(pairs), quality=items)
        return Revealed(script, self.blobs.put(msgspec.json.encode(script)))


@dataclass
class FakeHost:
    """A host with the fake engine prepared, and short ways to make candidates and run them."""

    host: Host
    prepared: Prepared
    blobs: DirectoryBlobs
    judge: SeededJudge
    runs: int = 0

    @property
    def start(self) -> Side:
        return self.prepared.start_side

    def source(self, path: str) -> str:
        return self.blobs.get(self.start.files[path]).decode()

    def change(
        self,
        path: str,
        old: str,
        new: str,
        *,
        rung: str = "hot",
        changed: tuple[str, ...] = (),
    ) -> Side:
        """The start release with one text replaced in one file."""
        source = self.source(path)
        assert old in source
        return self.write(path, source.replace(old, new), rung=rung, changed=changed)

    def write(
        self, path: str, text: str, *, rung: str = "hot", changed: tuple[str, ...] = ()
    ) -> Side:
        """The start release with one file replaced or added."""
        files = {**self.start.files, path: self.blobs.put(text.encode())}
        return Side(self.start.release, files, {}, {}, "c1", rung, (path,), changed)

    def lease(self, side: Side, plan: Plan | None = None, **more: Any) -> Lease:
        self.runs += 1
        rule = StopRule(min_units=3, max_units=3, mode="fixed")
        plan = plan or Plan("fast", rule)
        return Lease(
            f"t{self.runs}",
            "campaign",
            self.host.name,
            1,
            plan.tier,
            self.start,
            side,
            FAKE,
            Workload("single"),
            Objective("output_tok_s"),
            plan,
            epoch=self.runs,
            **more,
        )

    async def run(self, side: Side, plan: Plan | None = None) -> Evidence:
        return await self.host.run(self.lease(side, plan), self.judge)


@pytest.fixture(scope="module")
def seeded_judge() -> type[SeededJudge]:
    return SeededJudge


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="perpetune-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
async def fake(home: Path) -> AsyncIterator[FakeHost]:
    blobs = DirectoryBlobs(home / "blobs")
    host = Host("host-0", home, blobs, ANY_NOISE)
    prepared = await host.prepare(FAKE, "campaign")
    yield FakeHost(host, prepared, blobs, SeededJudge(blobs))
    await host.close()


@pytest.fixture
def residency(home: Path) -> Iterator[Residency]:
    """Engines of the fake start release, without a host around them."""
    blobs = DirectoryBlobs(home / "blobs")
    prepared = prepare_target(FAKE, "campaign", home, blobs)
    made = Residency("fake", prepared.model, prepared.start_side, blobs, home, ForkStrategy())
    made.bring_up()
    yield made
    made.close()
