"""One candidate through the tiers on a resident engine, as a campaign would take it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from benchmarks.battery.fixture import Fixture
from benchmarks.bench_host import Bench
from benchmarks.mix import Entry
from engine_host.errors import EngineLostError
from engine_host.trees import TreeError
from evaluator.blocks import EvidenceError
from evaluator.build import BuildRefused
from evaluator.check import CheckRefused
from protos.messages import OpenCampaign, Policy
from protos.target import Budget, Objective
from protos.trial import Side, Tier, Verdict
from scheduler.plans import RECHECK, plan_for
from scheduler.promotion import Outcome, agrees, shortfall

TIERS: tuple[Tier, ...] = ("fast", "slow", "cold")
ATTEMPTS = 3  # of a trial whose engine was lost


@dataclass
class End:
    """What became of a candidate: a verdict's word, or refused, lost, quarantined, promoted."""

    word: str
    reason: str
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def tier(self) -> str:
        """The last tier that it reached."""
        return self.verdicts[-1].tier if self.verdicts else "check"


def opening(bench: Bench, output_class: str = "equivalent") -> OpenCampaign:
    """The campaign that a trial of the battery would belong to."""
    objective = Objective("output_tok_s", output_class=output_class)
    budget = Budget(wall_s=7200.0)
    return OpenCampaign("audit", bench.target, bench.workload, objective, budget, Policy())


async def run_fixture(bench: Bench, fixture: Fixture, entry: Entry, *, unchecked: bool) -> End:
    """A fixture, up to the slow tier. `unchecked`: nobody looks at it before it runs."""
    try:
        side = bench.unchecked_side(entry) if unchecked else bench.side(entry)
    except (CheckRefused, BuildRefused) as error:
        return End("refused", str(error))
    return await run_tiers(bench, side, opening(bench, fixture.output_class), last="slow")


async def run_tiers(bench: Bench, side: Side, order: OpenCampaign, last: Tier = "cold") -> End:
    """Trials of one side, as long as it wins. The word `promoted` says that it won them all."""
    verdicts: list[Verdict] = []
    looked_at = False
    for tier in TIERS[: TIERS.index(last) + 1]:
        verdict = await _trial(bench, side, order, tier, "")
        if isinstance(verdict, str):
            return End("refused" if verdict.startswith("path") else "lost", verdict, verdicts)
        verdicts.append(verdict)
        lost = shortfall(Outcome.of(verdict), order.objective)
        if lost is not None:
            return End(verdict.word, verdict.reason, verdicts)
        if verdict.quarantined is not None and not looked_at:
            looked_at = True
            again = await _trial(bench, side, order, tier, RECHECK)
            apart = _apart(verdict, again, order.objective)
            if apart is not None:
                return End("quarantined", f"{verdict.quarantined}; again: {apart}", verdicts)
    word = "promoted" if last == "cold" else "faster"
    return End(word, verdicts[-1].reason, verdicts)


def _apart(first: Verdict, again: Verdict | str, objective: Objective) -> str | None:
    """Why a second look doesn't bear the first one out; None where it does."""
    if isinstance(again, str):
        return again
    return agrees(Outcome.of(first), Outcome.of(again), objective)


async def _trial(
    bench: Bench, side: Side, order: OpenCampaign, tier: Tier, purpose: str
) -> Verdict | str:
    """A verdict, or why there is none."""
    plan = plan_for(order, tier, purpose)
    side = msgspec.structs.replace(side, rung="cold") if tier == "cold" else side
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            _, evidence = await bench.run(side, plan, objective=order.objective)
            return bench.verdict(evidence)
        except TreeError as error:
            return str(error)
        except (EngineLostError, EvidenceError) as error:
            reason = str(error)
    return reason
