"""A campaign fed from a list: how the benchmarks use the product, through the bus like anyone.

Starts the local system on a fresh run folder without a proposer, opens a campaign that only
measures, keeps a few candidates outstanding, and collects what the ledger says until time
or list runs out.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.mix import Entry
from protos.candidate import Candidate
from protos.events import (
    CampaignReady,
    CampaignRefused,
    CandidateChecked,
    CandidateRefused,
    TrialEnded,
)
from protos.messages import Heartbeat, OpenCampaign, Policy, StopCampaign, SubmitCandidate
from protos.target import Budget, Objective, Target, Workload
from protos.trial import Verdict
from services.ledger.base import Recorded
from services.local.run_folder import create
from services.local.system import ROOMS, System, open_system
from services.ports import Ports

SINGLE = Workload("single")
OUTSTANDING = 8  # candidates submitted and not yet judged
DECIDED = ("faster", "slower", "no_gain", "incorrect")
FEEDLESS = tuple(room for room in ROOMS if room.name != "proposer")


@dataclass
class Tally:
    """What one campaign gave. `wall_s` runs from the first submission to the end of the count."""

    wall_s: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)  # candidate id to label
    refused: int = 0
    builds: int = 0
    resident_bytes: dict[str, int] = field(default_factory=dict)  # room to its largest, as it said

    def decided_per_hour(self) -> float:
        """Verdicts that settle a candidate, by the hour of wall time."""
        decided = sum(v.word in DECIDED for v in self.verdicts)
        return decided / self.wall_s * 3600.0

    def words(self) -> dict[str, int]:
        """Verdict word to count."""
        counts: dict[str, int] = {}
        for verdict in self.verdicts:
            counts[verdict.word] = counts.get(verdict.word, 0) + 1
        return counts


@dataclass
class Desk:
    """One campaign on a running system."""

    system: System
    name: str
    tally: Tally = field(default_factory=Tally)

    @property
    def ports(self) -> Ports:
        return self.system.ports

    async def submit(self, entry: Entry, base: str) -> str:
        """Send one candidate; returns its id."""
        files = {path: self.ports.blobs.put(text.encode()) for path, text in entry.files.items()}
        candidate = Candidate(
            self.name,
            base,
            dict(files),
            entry.knobs,
            entry.builds,
            strategy=entry.kind,
            proposer="bench",
            label=entry.label,
        )
        self.tally.labels[candidate.id] = entry.label
        await self.ports.bus.publish("scheduler", SubmitCandidate(candidate))
        return candidate.id


async def measure(
    folder: Path,
    name: str,
    entries: Iterator[Entry],
    seconds: float | None,
    policy: Policy,
    workload: Workload = SINGLE,
) -> Tally:
    """Run one campaign over `entries` for `seconds` (None: until all of them are judged).

    Raises RuntimeError with the reason if the target can't be prepared.
    """
    async with open_system(create(folder, name), rooms=FEEDLESS) as system:
        desk = Desk(system, name)
        opening = OpenCampaign(
            name,
            Target("slim", "smollm2"),
            workload,
            Objective("output_tok_s"),
            Budget(wall_s=7200.0),
            policy,
        )
        await desk.ports.bus.publish("scheduler", opening)
        events = desk.ports.ledger.follow(1)
        ready = await _ready(events)
        feed = _Feed(desk, entries, ready.start.id, expects_slow=policy.audit_slow_share > 0)
        listening = asyncio.create_task(_listen(desk))
        started = desk.ports.clock.monotonic_s()
        limit = asyncio.timeout(seconds) if seconds is not None else contextlib.nullcontext()
        with contextlib.suppress(TimeoutError):
            async with limit:
                await feed.run(events, system)
        desk.tally.wall_s = desk.ports.clock.monotonic_s() - started
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await desk.ports.bus.publish("scheduler", StopCampaign(name, "the benchmark is over"))
    return desk.tally


async def _listen(desk: Desk) -> None:
    """Note each room's resident memory from its heartbeats."""
    found = desk.tally.resident_bytes
    async for signal in await desk.ports.bus.signals(Heartbeat, what="heartbeat"):
        beat = signal.body
        found[beat.room] = max(found.get(beat.room, 0), beat.resident_bytes)


async def _ready(events: object) -> CampaignReady:
    async for recorded in events:  # type: ignore[attr-defined]
        if isinstance(recorded.event, CampaignReady):
            return recorded.event
        if isinstance(recorded.event, CampaignRefused):
            raise RuntimeError(recorded.event.reason)
    raise RuntimeError("the ledger ended before the target was ready")


@dataclass
class _Feed:
    """Keeps candidates outstanding and notes what became of them."""

    desk: Desk
    entries: Iterator[Entry]
    base: str
    expects_slow: bool
    outstanding: set[str] = field(default_factory=set)

    async def run(self, events: object, system: System) -> None:
        await self._fill()
        async for recorded in events:  # type: ignore[attr-defined]
            system.check()
            self._note(recorded)
            await self._fill()
            if not self.outstanding:
                return

    async def _fill(self) -> None:
        missing = OUTSTANDING - len(self.outstanding)
        for entry in itertools.islice(self.entries, max(0, missing)):
            self.outstanding.add(await self.desk.submit(entry, self.base))

    def _note(self, recorded: Recorded) -> None:
        event, tally = recorded.event, self.desk.tally
        if isinstance(event, CandidateRefused):
            raise RuntimeError(f"{event.candidate.label} was refused: {event.reason}")
        if isinstance(event, CandidateChecked):
            tally.builds += event.check.build_s > 0
            if not event.check.ok:
                tally.refused += 1
                self.outstanding.discard(event.check.candidate)
        if isinstance(event, TrialEnded) and event.verdict.candidate is not None:
            tally.verdicts.append(event.verdict)
            last = event.verdict.tier == "slow" or not self._slow_follows(event.verdict)
            if last:
                self.outstanding.discard(event.verdict.candidate)

    def _slow_follows(self, verdict: Verdict) -> bool:
        return self.expects_slow and verdict.word not in ("incorrect", "invalid", "not_engaged")
