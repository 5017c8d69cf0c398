"""One resident target in this process, without a bus: for what is timed a phase at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.mix import Entry
from engine_host.host import Host
from engine_host.judge_port import Revealed
from engine_host.targets import Prepared
from evaluator.build import build_library
from evaluator.check import check
from evaluator.recompute import ScriptMaker, judge_again, read_script
from evaluator.scope import Change, scope_of
from evaluator.seeds import commitment_of, read_secret, seed_of
from protos.candidate import Build, Candidate, Scalar
from protos.target import Objective, Target, Workload
from protos.trial import Evidence, Lease, Plan, Side, Verdict, trial_id
from services.blobs import DirectoryBlobs
from services.local.system import default_home

CAMPAIGN = "bench"
OBJECTIVE = Objective("output_tok_s")


@dataclass
class LocalJudge:
    """The evaluator's commit and reveal, in process."""

    secret: bytes
    maker: ScriptMaker
    prepared: Prepared
    blobs: DirectoryBlobs

    async def commit(self, trial: str, epoch: int) -> str:
        return commitment_of(seed_of(self.secret, trial, epoch))

    async def reveal(self, lease: Lease) -> Revealed:
        facts = self.prepared.facts
        context = int(facts.model.get("max_context") or 2048)
        seed = seed_of(self.secret, lease.trial, lease.epoch)
        script = await asyncio.to_thread(self.maker.script, lease, seed, facts.tokenizer, context)
        return Revealed(script, self.blobs.put(msgspec.json.encode(script)))


@dataclass
class Bench:
    """Runs leases of entries against the start release."""

    host: Host
    prepared: Prepared
    judge: LocalJudge
    target: Target
    workload: Workload
    folder: Path
    epoch: int = 0

    def side(self, entry: Entry, rung: str | None = None) -> Side:
        """Check an entry, build what it needs, and give side B. Raises CheckRefused."""
        blobs, start = self.judge.blobs, self.prepared.start
        files: dict[str, str | None] = {p: blobs.put(t.encode()) for p, t in entry.files.items()}
        candidate = Candidate(CAMPAIGN, start.id, files, entry.knobs, entry.builds)
        checked = check(candidate, start, self.prepared.facts.space, blobs)
        texts = {p: blobs.get(digest) for p, digest in checked.files.items()}
        libraries = {build.name: self._build(build, texts) for build in checked.builds}
        return Side(
            start.id,
            checked.files,
            checked.knobs,
            libraries,
            candidate=candidate.id,
            rung=rung or checked.scope.rung,
            delta=tuple(sorted(files)),
            changed=checked.scope.changed,
        )

    def unchecked_side(self, entry: Entry) -> Side:
        """Side B of an entry at which nobody looks before it runs. For the audit only.

        Raises BuildRefused.
        """
        blobs, start = self.judge.blobs, self.prepared.start
        files = {**start.files, **{p: blobs.put(t.encode()) for p, t in entry.files.items()}}
        candidate = Candidate(CAMPAIGN, start.id, dict(files), entry.knobs, entry.builds)
        texts = {path: blobs.get(digest) for path, digest in files.items()}
        libraries = {b.name: self._build(b, texts) for b in entry.builds}
        new = {p: text.decode() for p, text in texts.items() if p.endswith(".py")}
        old = {p: blobs.get(d).decode() for p, d in start.files.items() if p.endswith(".py")}
        scope = scope_of(Change(old, new, libraries_changed=dict.fromkeys(libraries, False)))
        return Side(
            start.id,
            files,
            {**start.knobs, **entry.knobs},
            libraries,
            candidate=candidate.id,
            rung=scope.rung if scope else "warm",
            delta=tuple(sorted(entry.files)),
            changed=scope.changed if scope else (),
        )

    def _build(self, build: Build, texts: Mapping[str, bytes]) -> str:
        sources = {p: text for p, text in texts.items() if p.endswith((".c", ".h"))}
        return build_library(build, sources, self.judge.blobs, self.folder / "builds")

    async def run(
        self,
        side: Side,
        plan: Plan,
        side_a: Side | None = None,
        objective: Objective = OBJECTIVE,
    ) -> tuple[Lease, Evidence]:
        """Measure one side against the start, or `side_a`. Each call is a trial of its own."""
        self.epoch += 1
        side_a = side_a or self.prepared.start_side
        ids = (self.target, self.workload, objective, plan.tier, str(self.epoch))
        lease = Lease(
            trial_id(side.candidate or "start", side_a.release, *ids),
            CAMPAIGN,
            self.host.name,
            1,
            plan.tier,
            side_a,
            side,
            self.target,
            self.workload,
            objective,
            plan,
            epoch=self.epoch,
        )
        return lease, await self.host.run(lease, self.judge)

    def verdict(self, evidence: Evidence) -> Verdict:
        """The judge's word on evidence. Raises EvidenceError."""
        digest = self.judge.blobs.put(msgspec.json.encode(evidence))
        script = read_script(self.judge.blobs, evidence)
        return judge_again(evidence, script, digest, self.judge.maker)


@contextlib.asynccontextmanager
async def open_bench(
    folder: Path,
    model: str = "smollm2",
    engine: str = "slim",
    knobs: dict[str, Scalar] | None = None,
    *,
    archives: bool = True,
) -> AsyncIterator[Bench]:
    """A warm target until the block ends; `knobs` are its start release's.

    `archives`: whether engines start from what was compiled before; else each compiles anew.
    """
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    blobs = DirectoryBlobs(folder / "blobs")
    target, workload = Target(engine, model), Workload("single")
    host = Host("bench", default_home(), blobs, archives=archives)
    try:
        prepared = await host.prepare(target, CAMPAIGN, knobs)
        maker = ScriptMaker(blobs, folder / "tokens")
        judge = LocalJudge(read_secret(folder), maker, prepared, blobs)
        yield Bench(host, prepared, judge, target, workload, folder)
    finally:
        await host.close()
