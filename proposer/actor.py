"""The proposer's mailbox: follows the ledger, and keeps every strategy's window full."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from proposer.fold import Campaign, Fold
from proposer.settings import ProposerSettings
from proposer.strategies.base import Context, Proposal, Strategy
from proposer.strategies.canaries import Canaries
from proposer.strategies.knobs import KnobSearch
from proposer.strategies.playbook import Playbook
from proposer.strategies.proposing import blobs_of, candidate_of
from proposer.strategies.random_draws import RandomDraws
from proposer.strategies.recombine import Recombine
from protos.canary import ARM
from protos.messages import SubmitCandidate
from services.actor import Actor
from services.hooks import on_event
from services.ledger import Recorded
from services.ports import Ports
from services.telemetry import span

CANARIES_WAITING = 2  # they are seldom due
Strategies = Callable[[Ports], list[Strategy]]


def built_in(ports: Ports) -> list[Strategy]:
    """The strategies of one campaign that come with Perpetune, in the order they are asked."""

    def read(digest: str) -> str:
        return ports.blobs.get(digest).decode()

    return [Playbook(), RandomDraws(), KnobSearch(), Recombine(read), Canaries()]


class Proposer(Actor):
    """Sends candidates while campaigns run. All it knows is in the ledger."""

    room = "proposer"

    def __init__(
        self, ports: Ports, settings: ProposerSettings, strategies: Strategies = built_in
    ) -> None:
        super().__init__(ports)
        self._settings = settings
        self._make: Callable[[], list[Strategy]] = partial(strategies, ports)
        self._fold = Fold()
        self._strategies: dict[str, list[Strategy]] = {}
        self._texts: dict[str, str] = {}
        self._replayed = 0
        self._head = 0
        self._wake = asyncio.Event()
        self._busy = True

    async def started(self) -> None:
        """Remember how much there is to replay: nothing is proposed before that was seen."""
        self._head = await self.ledger.head()
        self._wake.set()
        self.spawn(self._propose_for_ever(), "proposals")

    @on_event()
    async def saw(self, recorded: Recorded) -> None:
        outcome = self._fold.follow(recorded.event)
        if outcome is not None:
            candidate = outcome.tried.candidate
            for strategy in self._of(candidate.campaign):
                if strategy.name == candidate.strategy:
                    strategy.learn(outcome)
        self._replayed = recorded.seq
        self._wake.set()

    def vitals(self) -> dict[str, bool | int | float | str]:
        """What was seen of the ledger, whether more is being proposed, and what waits."""
        waiting = sum(campaign.waiting() for campaign in self._fold.campaigns.values())
        busy = self._busy or self._wake.is_set()
        return {"seen": self._replayed, "busy": busy, "waiting": waiting}

    async def _propose_for_ever(self) -> None:
        while True:
            self._busy = False
            await self._wake.wait()
            self._wake.clear()
            self._busy = True
            if self._replayed >= self._head:
                for campaign in list(self._fold.campaigns.values()):
                    await self._fill(campaign)

    async def _fill(self, campaign: Campaign) -> None:
        """One candidate of each strategy in turn, until no window has room."""
        idle: set[str] = set()
        strategies = self._of(campaign.id)
        while len(idle) < len(strategies):
            for strategy in strategies:
                if strategy.name in idle:
                    continue
                if not self._has_room(campaign, strategy) or not await self._ask(
                    campaign, strategy
                ):
                    idle.add(strategy.name)
                await asyncio.sleep(0)  # the ledger goes on meanwhile

    def _has_room(self, campaign: Campaign, strategy: Strategy) -> bool:
        policy, name, arm = campaign.opening.policy, strategy.name, strategy.arm
        if not campaign.running or campaign.facts is None or name in campaign.turned_away:
            return False
        if arm == ARM:
            return policy.canary_share > 0.0 and campaign.waiting(arm=arm) < CANARIES_WAITING
        if policy.strategies and name not in policy.strategies:
            return False
        if policy.control_share <= 0.0 and arm == "random":
            return False
        if policy.control_share >= 1.0 and arm != "random":
            return False
        return (
            campaign.waiting(strategy=name) < self._settings.window
            and campaign.waiting(arm=arm) < self._settings.arm_window
        )

    async def _ask(self, campaign: Campaign, strategy: Strategy) -> bool:
        """Let a strategy propose and send it. False: it has nothing now."""
        context = self._context(campaign, strategy.arm)
        if context is None:
            return False
        begun_s = self.clock.monotonic_s()
        answer = strategy.propose(context)
        proposal = await answer if inspect.isawaitable(answer) else answer
        if proposal is None:
            return False
        wall_s = self.clock.monotonic_s() - begun_s
        await self._send(context, proposal, strategy, wall_s)
        return True

    async def _send(
        self, context: Context, proposal: Proposal, strategy: Strategy, wall_s: float
    ) -> None:
        name, arm = strategy.name, strategy.arm
        candidate = candidate_of(context, proposal, name, arm, f"built-in-{self.instance}", wall_s)
        with span("propose", candidate=candidate.id, strategy=name, label=candidate.label):
            for content in blobs_of(proposal):
                self.blobs.put(content)
            self._fold.sent(candidate)
            await self.bus.publish("scheduler", SubmitCandidate(candidate))
        self.log.info("sent", candidate=candidate.id, strategy=name, label=candidate.label)

    def _context(self, campaign: Campaign, arm: str) -> Context | None:
        base = campaign.base(arm)
        if base is None or campaign.start is None or campaign.facts is None:
            return None
        opening = campaign.opening
        space: list[dict[str, Any]] = json.loads(campaign.facts.space)
        return Context(
            campaign=campaign.id,
            target=opening.target,
            workload=opening.workload,
            objective=opening.objective,
            facts=campaign.facts,
            base=base,
            start=campaign.start,
            sources={path: self._text(digest) for path, digest in base.files.items()},
            space=tuple(space),
            known=frozenset(campaign.candidates),
            history=tuple(campaign.judged.values()),
        )

    def _text(self, digest: str) -> str:
        if digest not in self._texts:
            self._texts[digest] = self.blobs.get(digest).decode()
        return self._texts[digest]

    def _of(self, campaign: str) -> list[Strategy]:
        if campaign not in self._strategies:
            self._strategies[campaign] = self._make()
        return self._strategies[campaign]
