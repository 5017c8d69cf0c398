"""`perpetune bench start`: from having a patch to first tokens of the patched engine, by rung.

Cold: a new interpreter, everything from disk (page cache warm, dequantised weights cached). Warm:
an engine built anew in a fork that has imports and weights. Hot: a fork of a warm engine with the
changed functions swapped in place. The rungs take turns, so that drift hits all alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import vllm_start
from benchmarks.bench_host import Bench, open_bench
from benchmarks.mix import Entry, Sources, module_constant, neutral_plan, vector_linear
from benchmarks.sources import slim_sources
from protos.trial import Plan, StopRule

PLAN = Plan(
    "fast",
    StopRule(min_units=1, max_units=1, mode="fixed"),
    grade_requests=0,
    prove_engagement=False,
)


def scopes(sources: Sources) -> dict[str, Entry]:
    """One candidate for each scope of a change."""
    return {
        "scheduler_function": Entry("plan", "function", neutral_plan(sources, 1)),
        "model_function": Entry("linear", "function", vector_linear(sources, 1)),
        "module_level": Entry("constant", "module", module_constant(sources, 1)),
        "knob": Entry("chunk", "knob", knobs={"prefill_chunk": 256}),
    }


def main(argv: list[str]) -> int:
    """Measure; the last line of stdout is JSON."""
    if {"vllm", "--engine=vllm"} & set(argv):
        return vllm_start.main(argv)
    parser = argparse.ArgumentParser(prog="perpetune bench start")
    parser.add_argument("--engine", default="slim", choices=("slim", "vllm"))
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(argv)
    print(json.dumps(asyncio.run(_run(options))))
    return 0


async def _run(options: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="perpetune-bench-") as folder:
        async with open_bench(Path(folder), options.model) as bench:
            seconds = await _rounds(bench, options.rounds)
    by_scope = {name: _summary(found) for name, found in seconds.items()}
    hot = [s for found in seconds.values() for rung, s in found if rung == "hot"]
    warm = [s for found in seconds.values() for rung, s in found if rung == "warm"]
    cold = [s for found in seconds.values() for rung, s in found if rung == "cold"]
    return {
        "engine": options.engine,
        "model": options.model,
        "rounds": options.rounds,
        "cold_s": round(median(cold), 3),
        "warm_s": round(median(warm), 3),
        "hot_s": round(median(hot), 3),
        "ratio": round(median(cold) / median(hot), 1),
        "scopes": by_scope,
    }


async def _rounds(bench: Bench, rounds: int) -> dict[str, list[tuple[str, float]]]:
    """Scope to (rung, seconds), the first round left out: it fills caches."""
    sides = {
        (name, rung): bench.side(entry, rung)
        for name, entry in scopes(slim_sources()).items()
        for rung in (None, "warm", "cold")
    }
    seconds: dict[str, list[tuple[str, float]]] = {name: [] for name, _ in sides}
    for number in range(rounds + 1):
        for (name, forced), side in sides.items():
            if forced == "warm" and bench.side(scopes(slim_sources())[name]).rung == "warm":
                continue  # its cheapest rung, measured already
            _, evidence = await bench.run(side, PLAN)
            if evidence.failure:
                raise RuntimeError(f"{name} on {side.rung}: {evidence.detail}")
            if number:
                seconds[name].append((evidence.rung, evidence.phases_s["first_tokens"]))
                spent = {k: round(v * 1000) for k, v in evidence.phases_s.items()}
                print(name, evidence.rung, spent, "ms", file=sys.stderr, flush=True)
    return seconds


def _summary(found: list[tuple[str, float]]) -> dict[str, object]:
    """`hot_s` is the cheapest valid rung of the scope, which `rung` names."""
    by_rung: dict[str, list[float]] = {}
    for rung, spent_s in found:
        by_rung.setdefault(rung, []).append(spent_s)
    cheapest = "hot" if "hot" in by_rung else "warm"
    hot_s, cold_s = median(by_rung[cheapest]), median(by_rung["cold"])
    return {
        "rung": cheapest,
        "cold_s": round(cold_s, 3),
        "warm_s": round(median(by_rung["warm"]), 3),
        "hot_s": round(hot_s, 3),
        "ratio": round(cold_s / hot_s, 1),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
