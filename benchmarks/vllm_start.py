"""`perpetune bench start --engine vllm`: from having a patch to first tokens, by mode and scope.

Cold is a new interpreter, everything from disk (files in the page cache), nothing compiled kept.
Warm is an engine built in a fork that has imports and weights; hot, a fork of the running engine.
Both keep compiled code where the change can't reach it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

import msgspec

from benchmarks import vllm_mix as changes
from benchmarks.bench_host import Bench, open_bench
from benchmarks.mix import Entry, Sources
from benchmarks.vllm_trials import LIMITS, nothing_compiled
from protos.trial import Plan, StopRule

PLAN = Plan(
    "fast",
    StopRule(min_units=1, max_units=1, mode="fixed"),
    limits=LIMITS,
    grade_requests=0,
    prove_engagement=False,
)
COLD_OF = {"compiled": "scheduler_function", "eager": "model_function"}  # stands for its mode
Times = dict[str, list[float]]


def scopes(sources: Sources, mode: str, number: int) -> dict[str, Entry]:
    """One candidate for each scope; another text for each number."""
    scheduler = Entry("scheduler", "function", changes.neutral(sources, number))
    model = Entry("feed-forward", "function", changes.direct_mlp(sources, number))
    constant = Entry("constant", "module", changes.module_constant(sources, number))
    # An init knob that no graph holds.
    prefixes = Entry("no prefix cache", "knob", knobs={"prefix_caching": False})
    if mode == "compiled":
        sampler = Entry("argmax", "function", changes.plain_argmax(sources, number))
        return {
            "scheduler_function": scheduler,
            "sampler_function": sampler,
            "init_knob": prefixes,
            "compiled_model_code": model,
        }
    return {
        "model_function": model,
        "scheduler_function": scheduler,
        "init_knob": prefixes,
        "module_level": constant,
    }


def main(argv: list[str]) -> int:
    """Measure; the last line of stdout is JSON."""
    parser = argparse.ArgumentParser(prog="perpetune bench start --engine vllm")
    parser.add_argument("--engine", choices=("vllm",), default="vllm")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=5, help="of hot starts; of warm ones half")
    parser.add_argument("--cold-rounds", type=int, default=1, help="80 s each, compiled")
    parser.add_argument("--modes", default=",".join(changes.MODES))
    options = parser.parse_args(argv)
    print(json.dumps(asyncio.run(_run(options))))
    return 0


async def _run(options: argparse.Namespace) -> dict[str, object]:
    found: dict[str, dict[str, Times]] = {}
    for mode in options.modes.split(","):
        with tempfile.TemporaryDirectory(prefix="perpetune-bench-") as folder:
            async with open_bench(Path(folder), options.model, "vllm", {"mode": mode}) as bench:
                found[mode] = await _mode(bench, mode, options)
    by_mode = {mode: _summary(mode, times) for mode, times in found.items()}
    first = next(iter(by_mode))
    head = by_mode[first][COLD_OF[first]]
    return {
        "engine": "vllm",
        "model": options.model,
        "rounds": options.rounds,
        "cold_rounds": options.cold_rounds,
        "headline": f"{first}, {COLD_OF[first]}",
        **{key: head.get(key) for key in ("cold_s", "warm_s", "hot_s", "ratio")},
        "scopes": by_mode,
    }


async def _mode(bench: Bench, mode: str, options: argparse.Namespace) -> dict[str, Times]:
    """Scope to rung to seconds. Rungs take turns; round 0 is hot only and left out, for it fills
    caches. What has to be compiled anew is measured once.
    """
    sources = changes.vllm_sources()
    found: dict[str, Times] = {}
    for number in range(options.rounds + 1):
        for name, entry in scopes(sources, mode, number).items():
            times = found.setdefault(name, {})
            for rung in _rungs(bench, mode, name, entry, number, options):
                await _timed(bench, name, entry, rung, times if number else {})
    return found


def _rungs(
    bench: Bench, mode: str, name: str, entry: Entry, number: int, options: argparse.Namespace
) -> list[str]:
    """Which rungs a scope takes in a round. One scope's cold starts stand for its mode."""
    stands = name == COLD_OF[mode]
    if name == "compiled_model_code":
        return ["warm"] if number == 1 else []
    cheapest = bench.side(entry).rung
    wanted = ["hot"] if cheapest == "hot" else []
    if 0 < number <= (options.rounds + 1) // 2 and (stands or cheapest == "warm"):
        wanted.append("warm")
    if 0 < number <= options.cold_rounds and (stands or cheapest == "cold"):
        wanted.append("cold")
    return wanted


async def _timed(bench: Bench, name: str, entry: Entry, rung: str, times: Times) -> None:
    side = bench.side(entry, rung)
    plan = msgspec.structs.replace(PLAN, force_rung=rung)
    with nothing_compiled(bench, side) if rung == "cold" else contextlib.nullcontext():
        _, evidence = await bench.run(side, plan)
    if evidence.failure:
        raise RuntimeError(f"{name} on {rung}: {evidence.detail}")
    if evidence.reproof:
        print(name, evidence.reproof, file=sys.stderr, flush=True)
    times.setdefault(evidence.rung, []).append(evidence.phases_s["first_tokens"])
    spent = {k: round(v * 1000) for k, v in evidence.phases_s.items()}
    print(name, evidence.rung, spent, "ms", file=sys.stderr, flush=True)


def _summary(mode: str, found: dict[str, Times]) -> dict[str, dict[str, object]]:
    """For each scope the median seconds of each rung, and the ratio of cold to its cheapest."""
    stands = found[COLD_OF[mode]]
    result: dict[str, dict[str, object]] = {}
    for name, times in found.items():
        seconds = {f"{rung}_s": round(median(all_s), 3) for rung, all_s in times.items()}
        counts = {rung: len(all_s) for rung, all_s in times.items()}
        cheapest = next(rung for rung in ("hot", "warm", "cold") if rung in times)
        cold = times.get("cold") or stands.get("cold")
        ratio = round(median(cold) / median(times[cheapest]), 1) if cold else None
        result[name] = {"rung": cheapest, **seconds, "ratio": ratio, "counts": counts}
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
