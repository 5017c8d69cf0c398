"""How far apart two identical sides look: A/A trials of one engine-second, both sides counted."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from benchmarks.bench_host import Bench, open_bench
from protos.metrics import pair_units
from protos.stopping import estimate
from protos.trial import BlockSample, Plan, Side, StopRule

ENGINE_S = 1.0


async def aa_sd(folder: Path, trials: int) -> dict[str, object]:
    """`aa_sd_1s`: standard deviation of the estimate (a log-ratio, so 0.01 is 1 %)."""
    async with open_bench(folder) as bench:
        pairs = await _pairs_in_a_second(bench)
        estimates = []
        for _ in range(trials):
            ratios = await _ratios(bench, pairs)
            estimates.append(estimate(ratios))
    worst = max(abs(value) for value in estimates)
    print(f"A/A: {pairs} pairs each, worst {worst:.4f}", file=sys.stderr, flush=True)
    return {
        "aa_sd_1s": round(statistics.stdev(estimates), 5),
        "aa_trials": trials,
        "aa_pairs": pairs,
        "aa_mean": round(statistics.fmean(estimates), 5),
    }


async def _pairs_in_a_second(bench: Bench) -> int:
    blocks = (await _measured(bench, 8))[1:]
    pair_s = 2 * statistics.median(block.wall_ns for block in blocks) / 1e9
    return max(2, round(ENGINE_S / pair_s))


async def _ratios(bench: Bench, pairs: int) -> list[float]:
    blocks = await _measured(bench, pairs)
    sides: dict[int, dict[str, BlockSample]] = {}
    for block in blocks:
        sides.setdefault(block.pair, {})[block.side] = block
    found = []
    for both in sides.values():
        if len(both) == 2 and not any(block.void for block in both.values()):
            found += pair_units("output_tok_s", both["A"], both["B"], "turns") or []
    return found


async def _measured(bench: Bench, pairs: int) -> tuple[BlockSample, ...]:
    """A fresh fork of the start against the kept one."""
    start = bench.prepared.start_side
    rule = StopRule(min_units=pairs, max_units=pairs, mode="fixed")
    plan = Plan("fast", rule, grade_requests=0, prove_engagement=False)
    side = Side(start.release, start.files, start.knobs, start.libraries, candidate="null")
    _, evidence = await bench.run(side, plan)
    if evidence.failure:
        raise RuntimeError(f"an A/A trial failed: {evidence.detail}")
    return evidence.blocks
