"""Real scheduler processes on a real broker, killed with -9 in mid-campaign."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protos import events as e
from protos.messages import AskStatus, CampaignStatus, SubmitCandidate
from scheduler.doors import about
from services.broker import Broker
from services.ledger import Recorded
from services.ports import Ports, open_ports
from services.processes import resident_bytes
from services.settings import Settings
from tests.scheduler.simulated_rooms import (
    SimulatedEvaluator,
    SimulatedHost,
    judgements,
    knob,
    opening,
    releases,
)

ROOT = Path(__file__).parents[2]
EFFECTS = {"a": 0.3, "b": 0.2, "c": -0.2, "d": 0.0}


class Stage:
    """A broker, a host and an evaluator in this process, and scheduler processes beside it."""

    def __init__(self, ports: Ports, url: str, run_dir: Path) -> None:
        self.ports = ports
        self.host = SimulatedHost(ports, EFFECTS, pace=0.03)
        self._evaluator = SimulatedEvaluator(ports)
        self._env = {
            **os.environ,
            "PERPETUNE_NATS_URL": url,
            "PERPETUNE_RUN_DIR": str(run_dir),
            "PERPETUNE_SCHEDULER_IDLE_FINISH_S": "10",
            "PERPETUNE_SCHEDULER_SNAPSHOT_EVENTS": "7",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "scheduler"]
        process = subprocess.Popen(argv, env=self._env, cwd=ROOT)
        self.processes.append(process)
        return process

    async def until(self, kind: type, count: int = 1) -> Recorded:
        seen = 0
        async for recorded in self.ports.ledger.follow():
            seen += isinstance(recorded.event, kind)
            if seen == count:
                return recorded
        raise AssertionError("the ledger was closed")

    async def status(self) -> CampaignStatus:
        return await self.ports.bus.ask("scheduler", AskStatus("demo"), CampaignStatus)

    async def events(self) -> list[Recorded]:
        return [recorded async for recorded in self.ports.ledger.read()]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        rooms = [asyncio.create_task(a.run()) for a in (self.host, self._evaluator)]
        try:
            yield self
        finally:
            for actor in (self.host, self._evaluator):
                actor.stop()
            for process in self.processes:
                process.kill()
                process.wait()
            await asyncio.gather(*rooms)


@asynccontextmanager
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    broker = Broker(tmp_path / "broker")
    url = await broker.start()
    settings = Settings(nats_url=url, run_dir=str(tmp_path / "run"))
    try:
        async with (
            open_ports(settings, name="stage") as ports,
            Stage(ports, url, tmp_path / "run").open() as made,
        ):
            yield made
    finally:
        await broker.stop()


def no_trial_was_judged_twice(events: list[Recorded]) -> bool:
    counts = Counter(trial for trial, _ in judgements(events))
    return bool(counts) and max(counts.values()) == 1


async def begin(on: Stage) -> None:
    await on.ports.bus.publish("scheduler", opening(240.0))
    await on.until(e.CampaignReady)
    for name in EFFECTS:
        await on.ports.bus.publish("scheduler", SubmitCandidate(knob(name)))


async def test_a_killed_scheduler_started_again_goes_on_with_its_spend_intact(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        first = on.start_scheduler()
        await begin(on)
        await on.until(e.TrialEnded, 4)
        before = await on.status()
        first.send_signal(signal.SIGKILL)
        first.wait()
        on.start_scheduler()
        await on.until(e.CampaignResumed)
        finished = (await on.until(e.CampaignFinished)).event
        events = await on.events()
    assert no_trial_was_judged_twice(events)
    assert releases(events)[-1].knobs == {"threads": 1, "a": 1, "b": 1}
    resumed = next(r.event for r in events if isinstance(r.event, e.CampaignResumed))
    assert resumed.wall_s == pytest.approx(before.wall_s, abs=2.0)
    assert finished.device_s > before.device_s > 0.0
    judged = [r.event.verdict.device_s for r in events if isinstance(r.event, e.TrialEnded)]
    assert finished.device_s == pytest.approx(sum(judged))


async def test_a_second_scheduler_waits_and_takes_over_when_the_first_is_killed(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        first = on.start_scheduler()
        await begin(on)
        on.start_scheduler()
        await on.until(e.TrialEnded, 5)
        assert not [r for r in await on.events() if isinstance(r.event, e.CampaignResumed)]
        first.send_signal(signal.SIGKILL)
        first.wait()
        await on.until(e.CampaignFinished)
        events = await on.events()
    assert no_trial_was_judged_twice(events)
    assert len(releases(events)) == 2


async def test_a_scheduler_process_stays_small_and_pauses_its_campaign_in_order(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        process = on.start_scheduler()
        await begin(on)
        await on.until(e.TrialEnded, 3)
        assert resident_bytes(process.pid) < 80_000_000
        process.terminate()
        paused = (await on.until(e.CampaignPaused)).event
        assert await asyncio.to_thread(process.wait) == 0
    assert paused.reason == "the scheduler was stopped"
    assert paused.wall_s > 0.0


async def test_everything_about_a_candidate_joins_one_trace_over_a_restart_too(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        first = on.start_scheduler()
        await begin(on)
        await on.until(e.TrialEnded, 2)
        first.kill()
        first.wait()
        on.start_scheduler()
        await on.until(e.CampaignFinished)
        events = await on.events()
    winner = knob("a").id
    traces = {r.trace_id for r in events if winner in about(r.event)}
    kinds = {type(r.event) for r in events if winner in about(r.event)}
    assert kinds >= {e.CandidateChecked, e.TrialGranted, e.TrialEnded, e.ReleasePromoted}
    assert len(traces) == 1
    assert None not in traces
