"""An engine host, an evaluator and a proposer that live in one process under a virtual clock.

The host draws seeded log-ratios around the true effect of what it runs and applies the real
stopping rule; what a trial measures depends on its id alone, so every run of a campaign agrees.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protos import events as e
from protos import stopping
from protos.candidate import Candidate, Check
from protos.messages import CheckCandidate, OpenCampaign, Policy, PrepareTarget, RunTrial
from protos.release import EngineFacts, Release
from protos.target import Budget, Objective, Target, Workload
from protos.trial import Interval, Lease, Side, Verdict, Word
from scheduler.actor import Scheduler
from scheduler.lead import Alone
from scheduler.settings import SchedulerSettings
from scheduler.snapshot import Snapshots
from services.actor import Actor
from services.bus import Delivery
from services.errors import Conflict
from services.hooks import on_command
from services.ledger import Recorded
from services.ports import MemoryWorld, Ports
from services.promotions import PromotionJournal

CAMPAIGN = "demo"
START = Release(CAMPAIGN, 0, files={"slim/model.py": "0" * 64}, knobs={"threads": 1})
FACTS = EngineFacts("fake", "cpu", START.files, "[]", None)
UNIT_S = {"fast": 0.06, "slow": 0.8, "cold": 4.0}


def opening(
    budget_s: float = 600.0, policy: Policy | None = None, min_effect: float = 0.03
) -> OpenCampaign:
    return OpenCampaign(
        CAMPAIGN,
        Target("fake", "none"),
        Workload("single"),
        Objective("output_tok_s", min_effect=min_effect),
        Budget(budget_s),
        policy or Policy(control_share=0.0),
    )


def knob(name: str, arm: str = "search", strategy: str = "knobs", base: str = "") -> Candidate:
    """A candidate that turns one knob on."""
    return Candidate(
        CAMPAIGN, base or START.id, knobs={name: 1}, strategy=strategy, arm=arm, label=name
    )


def measured(lease: Lease, effects: Mapping[str, float], noise: float) -> Verdict:
    """The verdict on a lease: log-ratios around the true difference of the two sides."""
    theta = _effect(lease.side_b, effects) - _effect(lease.side_a, effects)
    rng = random.Random(lease.trial)
    ratios: list[float] = []
    word: str = "continue"
    while word == "continue":
        ratios.append(rng.gauss(theta, noise))
        word = stopping.decide(ratios, lease.plan.rule)
    low, high = stopping.lower_bound(ratios, 0.05), stopping.upper_bound(ratios, 0.05)
    interval = Interval(
        "output_tok_s",
        math.exp(stopping.estimate(ratios)),
        None if low is None else math.exp(low),
        None if high is None else math.exp(high),
        len(ratios),
    )
    known: Word = word  # type: ignore[assignment]
    return Verdict(
        lease.trial,
        lease.side_b.candidate,
        lease.tier,
        known,
        "",
        "0" * 64,
        interval,
        "equivalent",
        metrics_b={"output_tok_s": 100.0 * math.exp(theta)},
        device_s=2 * UNIT_S[lease.tier] * len(ratios),
    )


def _effect(side: Side, effects: Mapping[str, float]) -> float:
    return sum(effects.get(name, 0.0) for name, value in side.knobs.items() if value == 1)


class SimulatedHost(Actor):
    """One engine. `deaf`: takes mail and does nothing; `fails`: trial ids it loses, how often."""

    room = "engine_host"
    heartbeat_s = None

    def __init__(
        self, ports: Ports, effects: Mapping[str, float], noise: float = 0.02, pace: float = 1.0
    ) -> None:
        super().__init__(ports, key="host0")
        self.pace = pace  # seconds of this clock in a second of the engine
        self.effects = effects
        self.noise = noise
        self.runs: list[tuple[str, int]] = []
        self.refused: list[str] = []
        self.deaf = False
        self.losses: dict[str, int] = {}

    async def started(self) -> None:
        up = e.EngineUp("host0", "cpu", ("fake",))
        await self.ledger.append("engine", "host0", up, None)

    @on_command(PrepareTarget)
    async def prepare(self, command: PrepareTarget, delivery: Delivery) -> None:
        await self.clock.sleep(2.0 * self.pace)
        ready = e.CampaignReady(command.campaign, "host0", FACTS, START, 2.0)
        await self.ledger.append("campaign", command.campaign, ready, None)

    @on_command(RunTrial)
    async def run_trial(self, command: RunTrial, delivery: Delivery) -> None:
        lease = command.lease
        if self.deaf or (lease.trial, lease.epoch) in self.runs:
            return
        verdict = measured(lease, self.effects, self.noise)
        await self.clock.sleep((verdict.device_s + 0.2) * self.pace)
        label = lease.side_b.candidate or ""
        if self.losses.get(label, 0) > 0:
            self.losses[label] -= 1
            lost = e.TrialLost(lease.campaign, lease.trial, lease.epoch, "the engine died")
            await self._end(lease, lost)
        else:
            await self._end(lease, e.TrialEnded(lease.campaign, lease.epoch, verdict))
        self.runs.append((lease.trial, lease.epoch))

    async def _end(self, lease: Lease, event: e.Event) -> None:
        try:
            await self.ledger.append("trial", lease.trial, event, lease.epoch)
        except Conflict:
            self.refused.append(lease.trial)


class SimulatedEvaluator(Actor):
    """Finds every candidate fit, but for those with a knob called `bad`."""

    room = "evaluator"
    heartbeat_s = None

    @on_command(CheckCandidate)
    async def check(self, command: CheckCandidate, delivery: Delivery) -> None:
        await self.clock.sleep(0.05)
        candidate = command.candidate
        bad = "bad" in candidate.knobs
        check = Check(candidate.id, not bad, "a bad knob" if bad else "", "hot", "knob")
        event = e.CandidateChecked(candidate.campaign, check)
        await self.ledger.append("candidate", candidate.id, event, None)


@dataclass
class Simulation:
    """All rooms on one memory bus. Make it inside `run_virtual`."""

    effects: Mapping[str, float]
    world: MemoryWorld
    settings: SchedulerSettings = field(default_factory=lambda: SchedulerSettings(tick_s=0.25))
    snapshots: Snapshots = field(default_factory=lambda: Snapshots(None))
    noise: float = 0.02
    journal: PromotionJournal = field(default_factory=lambda: PromotionJournal(None))

    def __post_init__(self) -> None:
        self.host = SimulatedHost(self.world.ports(), self.effects, self.noise)
        self.evaluator = SimulatedEvaluator(self.world.ports())
        self.scheduler = self._scheduler()
        self._tasks: list[asyncio.Task[None]] = []
        self._scheduling: asyncio.Task[None] | None = None

    def _scheduler(self) -> Scheduler:
        made = Scheduler(self.world.ports(), Alone(), self.snapshots, self.journal, self.settings)
        made.heartbeat_s = None
        return made

    def start(self) -> None:
        self._tasks = [asyncio.create_task(a.run()) for a in (self.host, self.evaluator)]
        self._scheduling = asyncio.create_task(self.scheduler.run())

    async def kill_scheduler(self) -> None:
        """End it without a chance to say anything, and leave its place empty."""
        assert self._scheduling is not None
        self._scheduling.cancel()
        await asyncio.gather(self._scheduling, return_exceptions=True)

    def start_scheduler(self) -> None:
        self.scheduler = self._scheduler()
        self._scheduling = asyncio.create_task(self.scheduler.run())

    async def tell(self, *commands: object) -> None:
        bus = self.world.ports().bus
        for command in commands:
            await bus.publish("scheduler", command)  # type: ignore[arg-type]

    async def until(self, kind: type, count: int = 1) -> Recorded:
        """Wait for the `count`th event of a kind; fail when a scheduler ends before it."""
        seen = 0
        async for recorded in self.world.ledger.follow():
            seen += isinstance(recorded.event, kind)
            if seen == count:
                return recorded
        raise AssertionError("the ledger was closed")

    async def events(self) -> list[Recorded]:
        return [recorded async for recorded in self.world.ledger.read()]

    async def end(self) -> None:
        for actor in (self.scheduler, self.host, self.evaluator):
            actor.stop()
        tasks = [*self._tasks, *([self._scheduling] if self._scheduling else [])]
        await asyncio.gather(*tasks)


def judgements(events: Sequence[Recorded]) -> list[tuple[str, str]]:
    """Trial and word of every verdict, in the ledger's order."""
    return [
        (r.event.verdict.trial, r.event.verdict.word)
        for r in events
        if isinstance(r.event, e.TrialEnded)
    ]


def releases(events: Sequence[Recorded]) -> list[Release]:
    """What was promoted, without the start."""
    promoted = (r.event for r in events if isinstance(r.event, e.ReleasePromoted))
    return [event.release for event in promoted if event.release.number > 0]
