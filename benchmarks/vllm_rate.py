"""`perpetune bench rate --engine vllm`: decided verdicts an hour, resident against cold starts.

One run: the graded candidates through a resident vLLM; some of the same through a control that
starts a cold vLLM for each; and all of them through the slow tier, to see how far the fast one can
be trusted. Controls: `cold` is our own (a new process for each candidate, same evidence rule, same
judge; side A stays up in both); `openevolve` is that project's evaluator (one measurement of each
candidate, no evidence rule, no side A, its score against that of the start).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import vllm_peer
from benchmarks.bench_host import OBJECTIVE, Bench, open_bench
from benchmarks.mix import Entry
from benchmarks.vllm_mix import MODES, graded, mix, vllm_sources
from benchmarks.vllm_peer import PeerSetting, Row
from benchmarks.vllm_trials import decided_per_hour, effects, missed, plan, say, tried, words
from evaluator.agreement import agreement
from evaluator.workloads import make_generator
from protos.candidate import Scalar
from protos.target import Workload

CONTROLS = ("cold", "openevolve")
# Episodes of a third of the usual length, still three times a fast block of the workload.
EPISODES = Workload(
    "single",
    params={
        "slow_prompt_min": 16.0,
        "slow_prompt_max": 48.0,
        "slow_output_min": 12.0,
        "slow_output_max": 16.0,
    },
)
PEER_BLOCKS = 24  # of the fast workload: about as much timed work as one of our verdicts takes
KEPT = {
    "cold": "side A, the reference and the weights' file stay in memory; the candidate's process, "
    "imports, engine and compiled code are new",
    "openevolve": "the weights' file stays in memory; process, imports, engine and compiled code "
    "are new; the start is measured once and not counted",
}


@dataclass
class Found:
    """What one run measured."""

    resident: list[Row] = field(default_factory=list)
    control: list[Row] = field(default_factory=list)
    kept_cache: list[Row] = field(default_factory=list)
    slow: list[Row] = field(default_factory=list)


def main(argv: list[str]) -> int:
    """Run everything; the last line of stdout is JSON."""
    parser = argparse.ArgumentParser(prog="perpetune bench rate --engine vllm")
    parser.add_argument("--engine", choices=("vllm",), default="vllm")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--mode", choices=MODES, default="compiled")
    parser.add_argument("--control", choices=CONTROLS, default="cold")
    parser.add_argument(
        "--control-candidates",
        type=int,
        default=5,
        help="of the twenty; each takes a cold start (76 s compiled, 9 s eager)",
    )
    parser.add_argument(
        "--kept-cache-candidates",
        type=int,
        default=2,
        help="compiled: so many of these once more, with compiled code kept between cold starts",
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="of more candidates than 20")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="rate,control,agreement")
    options = parser.parse_args(argv)
    folder = Path("runs") / time.strftime("bench-rate-vllm-%Y%m%d-%H%M%S")
    print(json.dumps(asyncio.run(_run(folder, options))))
    return 0


async def _run(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    parts = set(options.only.split(","))
    sources = vllm_sources()
    entries = graded(sources, options.mode)
    chosen = controls(entries, options.control_candidates)
    knobs: dict[str, Scalar] = {"mode": options.mode}
    found = Found()
    began_s = time.monotonic()
    async with open_bench(folder, options.model, "vllm", knobs) as bench:
        print(f"engines up in {time.monotonic() - began_s:.0f} s", flush=True)
        if "rate" in parts:
            found.resident = await tried(bench, entries, plan(bench, "fast"))
            if options.seconds:
                more = (e for e in mix(sources, options.mode, options.seed) if e not in entries)
                found.resident += await tried(bench, more, plan(bench, "fast"), options.seconds)
        if "control" in parts and options.control == "cold":
            cold = plan(bench, "fast", "cold")
            found.control = await tried(bench, chosen, cold)
            if _keeps(options):
                some = spread(chosen, options.kept_cache_candidates)
                found.kept_cache = await tried(bench, some, cold, keeps_compiled=True)
        if "agreement" in parts:
            bench.workload = EPISODES
            found.slow = await tried(bench, _correct(entries), plan(bench, "slow"))
            bench.workload = Workload("single")
        peer = _peer(bench, folder, knobs)
    if "control" in parts and options.control == "openevolve":
        _openevolve(found, peer, folder, chosen, options)
    return _result(options, found, len(entries))


def spread(entries: list[Entry], count: int) -> list[Entry]:
    """So many of the entries, evenly over the list, which goes from kind to kind."""
    count = max(1, min(count, len(entries)))
    return [entries[(2 * i + 1) * len(entries) // (2 * count)] for i in range(count)]


def controls(entries: list[Entry], count: int) -> list[Entry]:
    """What a control measures: an even spread, with what can win among it."""
    chosen = spread(entries, count)
    likely = [entry for entry in entries if entry.label.startswith("all cores")]
    if count > 1 and likely and likely[0] not in chosen:
        chosen = [*spread(entries, count - 1), likely[0]]
    return chosen


def _keeps(options: argparse.Namespace) -> bool:
    """Whether to see also what a control gives whose cold starts share what was compiled."""
    return bool(options.mode == "compiled" and options.kept_cache_candidates > 0)


def _correct(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.grade]


def _peer(bench: Bench, folder: Path, knobs: dict[str, Scalar]) -> PeerSetting:
    """The peer measures blocks of the same workload, fresh ones of a seed of its own."""
    facts = bench.prepared.facts
    context = int(facts.model.get("max_context") or 2048)
    assert facts.tokenizer is not None
    content = bench.judge.maker.content(facts.tokenizer)
    generator = make_generator(bench.workload, content, context)
    pairs = [generator.fast("the peer's", number) for number in range(PEER_BLOCKS)]
    blocks = [
        [{"id": r.id, "prompt": list(r.prompt), "max_tokens": r.max_tokens} for r in pair.requests]
        for pair in pairs
    ]
    return PeerSetting(bench.prepared.model.folder, knobs, blocks, folder / "openevolve")


def _openevolve(
    found: Found,
    peer: PeerSetting,
    folder: Path,
    chosen: list[Entry],
    options: argparse.Namespace,
) -> None:
    found.control = vllm_peer.evaluate(peer, chosen)
    for row in found.control:
        say(row)
    if _keeps(options):
        cache = (folder / "openevolve-cache").resolve()
        kept = PeerSetting(peer.weights, peer.knobs, peer.blocks, folder / "openevolve-kept", cache)
        found.kept_cache = vllm_peer.evaluate(kept, spread(chosen, options.kept_cache_candidates))
        for row in found.kept_cache:
            say(row)


def _result(options: argparse.Namespace, found: Found, count: int) -> dict[str, object]:
    result: dict[str, object] = {
        "engine": "vllm",
        "model": options.model,
        "mode": options.mode,
        "control": options.control,
        "candidates": count,
    }
    if found.resident:
        result |= _rate(found.resident)
    if found.control:
        result |= _control(found, options)
    if found.slow:
        result |= _tiers(found)
    return result


def _rate(rows: list[Row]) -> dict[str, Any]:
    found = words(rows)
    by_rung = {
        rung: round(median(row.wall_s for row in rows if row.rung == rung), 2)
        for rung in sorted({row.rung for row in rows})
    }
    return {
        "experiments_per_hour": round(decided_per_hour(rows)),
        "wall_s": round(sum(row.wall_s for row in rows), 1),
        "trials": len(rows),
        "verdicts": found,
        "inconclusive": found.get("inconclusive", 0),
        "refused_by_check": found.get("refused", 0),
        "median_s_by_rung": by_rung,
    }


def _control(found: Found, options: argparse.Namespace) -> dict[str, Any]:
    """`ratio` compares the same candidates on both sides, `ratio_hot` those of them that we tried
    hot; `ratio_all` is ours on all of the mix against the control's candidates.
    """
    control = decided_per_hour(found.control)
    result: dict[str, Any] = {
        "control_per_hour": round(control, 1),
        "control_candidates": len(found.control),
        "control_wall_s": round(sum(row.wall_s for row in found.control), 1),
        "control_verdicts": words(found.control),
        "control_keeps": KEPT[options.control],
    }
    if found.resident and control:
        labels = {row.label for row in found.control}
        same = [row for row in found.resident if row.label in labels]
        both = effects(same, found.control)
        tau = agreement([x for _, x, _ in both], [y for _, _, y in both])
        gone = missed(found.resident, found.control, OBJECTIVE.min_effect)
        result |= {
            "ratio": round(decided_per_hour(same) / control, 1),
            "ratio_all": round(decided_per_hour(found.resident) / control, 1),
            "ratio_hot": _hot_ratio(same, found.control),
            "control_tau": tau.tau,
            "control_tau_candidates": tau.count,
            "control_missed_winners": len(gone),
            "control_missed": gone,
        }
        if found.kept_cache:
            kept = decided_per_hour(found.kept_cache)
            result |= {
                "kept_cache_per_hour": round(kept, 1),
                "kept_cache_candidates": len(found.kept_cache),
                "ratio_kept_cache": round(decided_per_hour(same) / kept, 1) if kept else None,
            }
    return result


def _hot_ratio(ours: list[Row], control: list[Row]) -> float | None:
    hot = [row for row in ours if row.rung == "hot"]
    labels = {row.label for row in hot}
    theirs = decided_per_hour([row for row in control if row.label in labels])
    return round(decided_per_hour(hot) / theirs, 1) if theirs else None


def _tiers(found: Found) -> dict[str, Any]:
    both = effects(found.resident, found.slow)
    tau = agreement([x for _, x, _ in both], [y for _, _, y in both])
    gone = missed(found.resident, found.slow, OBJECTIVE.min_effect)
    return {
        "kendall_tau": tau.tau,
        "kendall_tau_95": [tau.low, tau.high],
        "graded": tau.count,
        "missed_winners": len(gone),
        "missed": gone,
        "slow_wall_s": round(sum(row.wall_s for row in found.slow), 1),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
