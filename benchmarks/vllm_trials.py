"""Entries through one resident vLLM, each from its texts to its verdict, one after another.

In this process, without a bus, so that a trial's limits can be those of a compiled cold start. What
is counted of each: check, process, load, timing, grading, engagement, judgement.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from benchmarks.bench_host import OBJECTIVE, Bench
from benchmarks.mix import Entry
from benchmarks.vllm_peer import Row
from engine_host import compiled
from engine_host.loading import Tree
from engine_host.zygotes import KINDS
from evaluator.check import CheckRefused
from protos.messages import OpenCampaign
from protos.target import Budget
from protos.trial import Limits, Plan, Side, Tier, Verdict
from scheduler.plans import plan_for
from services.local.system import default_home

LIMITS = Limits(start_s=240.0, prepare_s=30.0, block_s=30.0, memory_bytes=10_000_000_000)
DECIDED = ("faster", "slower", "no_gain", "incorrect")


def plan(bench: Bench, tier: Tier, force_rung: str | None = None) -> Plan:
    """The loop's own plan of a tier, with limits that a compiled cold start fits in."""
    opening = OpenCampaign("bench", bench.target, bench.workload, OBJECTIVE, Budget(wall_s=7200.0))
    declared = plan_for(opening, tier, "")
    return msgspec.structs.replace(declared, limits=LIMITS, force_rung=force_rung)


@contextlib.contextmanager
def nothing_compiled(bench: Bench, side: Side) -> Iterator[None]:
    """Meanwhile, what was compiled before for this side's code is out of sight, then back."""
    model, kind = bench.prepared.model, KINDS[bench.target.engine]
    found = compiled.archive(
        default_home(), kind, Tree.of(side), model.folder.name, model.precision
    )
    aside = Path(f"{found}.aside")
    if not found or not os.path.exists(found):
        yield
        return
    os.replace(found, aside)
    try:
        yield
    finally:
        os.replace(aside, found)


async def tried(
    bench: Bench,
    entries: Iterable[Entry],
    how: Plan,
    limit_s: float | None = None,
    keeps_compiled: bool = False,
) -> list[Row]:
    """A row for each entry, until they or the time run out.

    Cold starts find nothing compiled, unless `keeps_compiled`.
    """
    rows: list[Row] = []
    began_s = time.monotonic()
    for entry in entries:
        if limit_s is not None and time.monotonic() - began_s >= limit_s:
            break
        rows.append(await _one(bench, entry, how, keeps_compiled))
        say(rows[-1])
    return rows


async def _one(bench: Bench, entry: Entry, how: Plan, keeps: bool) -> Row:
    began_s = time.monotonic()
    try:
        side = bench.side(entry)
    except CheckRefused:
        return Row(entry.label, time.monotonic() - began_s, "refused", rung="none")
    cold = how.force_rung == "cold"
    with nothing_compiled(bench, side) if cold and not keeps else contextlib.nullcontext():
        _, evidence = await bench.run(side, how)
    verdict = bench.verdict(evidence)
    wall_s = time.monotonic() - began_s
    first_s = evidence.phases_s.get("first_tokens")
    ratio = _ratio(verdict)
    return Row(entry.label, wall_s, verdict.word, ratio, evidence.rung, first_s)


def _ratio(verdict: Verdict) -> float | None:
    measured = verdict.interval is not None and verdict.word not in ("incorrect", "invalid")
    return verdict.interval.estimate if measured and verdict.interval else None


def say(row: Row) -> None:
    """One line of progress."""
    ratio = f"{row.ratio:.3f}" if row.ratio is not None else "-"
    print(
        f"  {row.wall_s:7.2f} s  {row.rung:4s} {row.word:12s} {ratio:>6s}  {row.label}",
        file=sys.stderr,
        flush=True,
    )


def decided_per_hour(rows: list[Row]) -> float:
    """Verdicts that settle a candidate, by the hour spent on all of the rows."""
    spent_s = sum(row.wall_s for row in rows)
    decided = sum(row.word in DECIDED for row in rows)
    return decided / spent_s * 3600.0 if spent_s else 0.0


def words(rows: list[Row]) -> dict[str, int]:
    """Word to count."""
    found: dict[str, int] = {}
    for row in rows:
        found[row.word] = found.get(row.word, 0) + 1
    return found


def effects(left: list[Row], right: list[Row]) -> list[tuple[str, float, float]]:
    """Label and log-ratios of what both measured."""
    known = {row.label: row.ratio for row in right if row.ratio}
    return [
        (row.label, math.log(row.ratio), math.log(known[row.label] or 1.0))
        for row in left
        if row.ratio and row.label in known
    ]


def missed(ours: list[Row], theirs: list[Row], min_effect: float) -> list[str]:
    """Labels that the other way calls faster by the least effect, and we did not pass."""
    passed = {row.label for row in ours if row.word == "faster"}
    judged = {row.label for row in ours}
    return sorted(
        row.label
        for row in theirs
        if row.word == "faster"
        and row.ratio is not None
        and row.ratio >= 1.0 + min_effect
        and row.label in judged - passed
    )
