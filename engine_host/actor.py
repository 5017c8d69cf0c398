"""The engine host on the bus: prepares targets, runs leases, proves its engines while idle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from engine_host.block import Quiet
from engine_host.errors import EngineLostError, HostError
from engine_host.host import Host
from engine_host.judge_port import Revealed
from engine_host.settings import EngineHostSettings
from engine_host.zygotes import KINDS, Exposure
from protos.codec import decode
from protos.events import (
    CampaignReady,
    CampaignRefused,
    EngineRebuilt,
    EngineReproved,
    EngineUp,
    Event,
    TrialLost,
    TrialVoided,
)
from protos.messages import (
    Activity,
    CommitSeed,
    JudgeTrial,
    PrepareTarget,
    RevealScript,
    RunTrial,
    ScriptRevealed,
    SeedCommitment,
)
from protos.trial import Lease, Script
from services.actor import Actor
from services.bus import Delivery
from services.errors import AskRefused, Conflict
from services.hooks import on_command
from services.ports import Ports

REVEAL_LIMIT_S = 30.0
PROGRESS_EVERY_PAIRS = 4


class EngineHost(Actor):
    """One device group: one trial at a time. `home` caches models and trees across runs."""

    room = "engine_host"
    concurrency = 1

    def __init__(self, ports: Ports, name: str, home: Path, settings: EngineHostSettings) -> None:
        super().__init__(ports, key=name, instance=name)
        self._name, self._settings = name, settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._built: list[tuple[str, str, float]] = []
        self._epochs: dict[str, int] = {}
        self._since_proof: list[tuple[str, str]] = []
        self._busy_until_s = 0.0
        self._doing: Lease | None = None
        self._host = Host(
            name,
            home,
            ports.blobs,
            Quiet(settings.waited_share, settings.steal_share),
            Exposure(settings.unsafe_no_sandbox, settings.child_output),
            lambda *built: self._built.append(built),
        )

    async def started(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._announce()
        self.spawn(self._prove_while_idle(), "re-proof")

    async def stopping(self) -> None:
        await self._host.close()

    def vitals(self) -> dict[str, bool | int | float | str]:
        return {"trial": self._doing.trial if self._doing else "", "seen": len(self._epochs)}

    @on_command(PrepareTarget)
    async def prepare_target(self, command: PrepareTarget, delivery: Delivery) -> None:
        began_s = self.clock.monotonic_s()
        await self.bus.signal(self.room, self._name, Activity(self._name, "preparing the target"))
        last = await self.ledger.last("campaign", command.campaign)
        event: Event
        try:
            prepared = await self._host.prepare(command.target, command.campaign)
        except HostError as error:
            event = CampaignRefused(command.campaign, str(error))
        else:
            wall_s = self.clock.monotonic_s() - began_s
            event = CampaignReady(
                command.campaign, self._name, prepared.facts, prepared.start, wall_s
            )
        await self._tell_built()
        # A conflict (somebody spoke of the campaign meanwhile) brings the command again: it is
        # prepared by then, so that costs nothing.
        await self.ledger.append("campaign", command.campaign, event, last)
        await self._idle()

    @on_command(RunTrial)
    async def run_trial(self, command: RunTrial, delivery: Delivery) -> None:
        lease = command.lease
        if not await self._holds(lease):
            self.log.warning("a lease that has passed on", trial=lease.trial, epoch=lease.epoch)
            return
        self._doing = lease
        try:
            evidence = await self._host.run(lease, self, self._progress)
        except EngineLostError as error:
            await self._lose(lease, f"the host lost an engine: {error}")
        except (HostError, AskRefused) as error:
            await self._lose(lease, str(error))
        else:
            self._since_proof.append((lease.campaign, lease.trial))
            digest = await asyncio.to_thread(self.blobs.put, msgspec.json.encode(evidence))
            judge = JudgeTrial(lease.trial, lease.epoch, digest)
            await self.bus.publish(
                "evaluator", judge, key=f"{lease.trial}-{lease.epoch}", once=True
            )
        finally:
            self._doing = None
        await self._tell_built()
        await self._idle()

    async def commit(self, trial: str, epoch: int) -> str:
        """The judge port: a commitment to the seed, before the patch is loaded."""
        answer = await self.bus.ask("evaluator", CommitSeed(trial, epoch), SeedCommitment)
        return answer.commitment

    async def reveal(self, lease: Lease) -> Revealed:
        """The judge port: the script, once the trial is ready."""
        facts = self._host.facts(lease.campaign)
        context = int(facts.model.get("max_context") or 2048)
        ask = RevealScript(lease, facts.tokenizer, context)
        answer = await self.bus.ask("evaluator", ask, ScriptRevealed, timeout_s=REVEAL_LIMIT_S)
        raw = await asyncio.to_thread(self.blobs.get, answer.script)
        return Revealed(decode(raw, Script), answer.script)

    async def gave_up(self, command: PrepareTarget | RunTrial, reason: str) -> None:
        if isinstance(command, RunTrial):
            await self._lose(command.lease, reason)
            return
        last = await self.ledger.last("campaign", command.campaign)
        refused = CampaignRefused(command.campaign, reason)
        await self.ledger.append("campaign", command.campaign, refused, last)

    async def _holds(self, lease: Lease) -> bool:
        """Whether the lease is still the trial's last word, here and in the ledger."""
        if lease.epoch < self._epochs.get(lease.trial, 0):
            return False
        self._epochs[lease.trial] = lease.epoch
        return await self.ledger.last("trial", lease.trial) == lease.epoch

    async def _lose(self, lease: Lease, reason: str) -> None:
        lost = TrialLost(lease.campaign, lease.trial, lease.epoch, reason)
        try:
            await self.ledger.append("trial", lease.trial, lost, lease.epoch)
        except Conflict:
            self.log.warning("the trial has moved on", trial=lease.trial, reason=reason)

    def _progress(self, doing: str, pair: int) -> None:
        """Called in the measuring thread, between blocks; says something only now and then."""
        lease, loop = self._doing, self._loop
        if lease is None or loop is None or (doing == "timing" and pair % PROGRESS_EVERY_PAIRS):
            return
        side = lease.side_b
        now = Activity(
            self._name,
            doing,
            lease.trial,
            side.candidate,
            lease.purpose,
            lease.tier,
            pair,
            lease.plan.rule.max_units,
        )
        asyncio.run_coroutine_threadsafe(self.bus.signal(self.room, self._name, now), loop)

    async def _announce(self) -> None:
        """Here, idle, and with nothing prepared."""
        up = EngineUp(self._name, self._settings.device_class, tuple(KINDS))
        await self.ledger.append("engine", self._name, up, None)

    async def _tell_built(self) -> None:
        built, self._built = self._built, []
        for release, reason, wall_s in built:
            event = EngineRebuilt(self._name, release, reason, wall_s)
            await self.ledger.append("engine", self._name, event, None)

    async def _idle(self) -> None:
        self._busy_until_s = self.clock.monotonic_s()
        await self.bus.signal(self.room, self._name, Activity(self._name, "idle"))

    async def _prove_while_idle(self) -> None:
        every_s = self._settings.reprove_idle_s
        while True:
            await self.clock.sleep(every_s / 4)
            idle_s = self.clock.monotonic_s() - self._busy_until_s
            if self._doing is None and self._since_proof and idle_s >= every_s:
                await self._prove()

    async def _prove(self) -> None:
        """Re-prove every engine; after a failure void what was measured since the last proof."""
        trials, self._since_proof = self._since_proof, []
        found = await self._host.reprove()
        for release, wrong in found.items():
            event = EngineReproved(self._name, release, not wrong, wrong)
            await self.ledger.append("engine", self._name, event, None)
        await self._tell_built()
        wrong = next((reason for reason in found.values() if reason), "")
        for campaign, trial in trials if wrong else ():
            voided = TrialVoided(campaign, trial, f"the engine failed its proof: {wrong}")
            await self.ledger.append("trial", trial, voided, None)
        if not all(self._host.holds(campaign) for campaign, _ in trials):
            await self._announce()
