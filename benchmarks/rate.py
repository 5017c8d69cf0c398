"""`perpetune bench rate`: decided verdicts an hour, resident against cold; how far to trust them.

One run: the checked-in mix through the resident loop, the same mix with a new process for every
candidate and the same evidence rule, the graded entries through both tiers, and A/A trials.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from pathlib import Path

import msgspec

from benchmarks import noise, vllm_rate
from benchmarks.desk import Tally, measure
from benchmarks.mix import graded, mix
from benchmarks.sources import slim_sources
from evaluator.agreement import agreement, missed_winners
from protos.messages import Policy
from protos.target import Objective, Workload
from protos.trial import Verdict

# Episodes of half the usual length: twenty candidates in minutes, still 5 to 10 times a fast block.
EPISODES = Workload(
    "single",
    params={
        "slow_prompt_min": 16.0,
        "slow_prompt_max": 48.0,
        "slow_output_min": 16.0,
        "slow_output_max": 24.0,
    },
)
MEASURE_ONLY = Policy(control_share=0.0, promote=False)
MIN_EFFECT = Objective("output_tok_s").min_effect


def main(argv: list[str]) -> int:
    """Run everything; the last line of stdout is JSON."""
    if {"vllm", "--engine=vllm"} & set(argv):
        return vllm_rate.main(argv)
    parser = argparse.ArgumentParser(prog="perpetune bench rate")
    parser.add_argument("--engine", default="slim", choices=("slim", "vllm"))
    parser.add_argument("--seconds", type=float, default=120.0, help="of the resident loop")
    parser.add_argument("--control-seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="rate,control,agreement,noise")
    options = parser.parse_args(argv)
    parts = set(options.only.split(","))
    folder = Path("runs") / time.strftime("bench-rate-%Y%m%d-%H%M%S")
    print(json.dumps(asyncio.run(_run(folder, options, parts))))
    return 0


async def _run(folder: Path, options: argparse.Namespace, parts: set[str]) -> dict[str, object]:
    sources = slim_sources()
    result: dict[str, object] = {"engine": options.engine, "seconds": options.seconds}
    if "rate" in parts:
        _say(f"resident loop, {options.seconds:.0f} s of the mix")
        tally = await measure(
            folder / "resident",
            "bench-resident",
            mix(sources, options.seed),
            options.seconds,
            MEASURE_ONLY,
        )
        result |= _rate(tally)
    if "control" in parts:
        _say(f"cold-process control, {options.control_seconds:.0f} s of the same mix")
        policy = msgspec.structs.replace(MEASURE_ONLY, force_rung="cold")
        control = await measure(
            folder / "control",
            "bench-control",
            mix(sources, options.seed),
            options.control_seconds,
            policy,
        )
        per_hour = control.decided_per_hour()
        result |= {"control_per_hour": round(per_hour), "control_verdicts": control.words()}
        if "rate" in parts and per_hour > 0:
            result["ratio"] = round(tally.decided_per_hour() / per_hour, 1)
    if "agreement" in parts:
        entries = graded(sources)
        _say(f"both tiers on {len(entries)} graded candidates")
        policy = msgspec.structs.replace(MEASURE_ONLY, audit_slow_share=1.0)
        result |= _agreement(
            await measure(
                folder / "agreement", "bench-agreement", iter(entries), None, policy, EPISODES
            )
        )
    if "noise" in parts:
        _say("50 A/A trials of one engine-second")
        result |= await noise.aa_sd(folder / "noise", trials=50)
    return result


def _rate(tally: Tally) -> dict[str, object]:
    words = tally.words()
    return {
        "experiments_per_hour": round(tally.decided_per_hour()),
        "wall_s": round(tally.wall_s, 1),
        "verdicts": words,
        "inconclusive": words.get("inconclusive", 0),
        "refused_by_check": tally.refused,
        "builds": tally.builds,
        "resident_mb": {room: round(b / 1e6) for room, b in sorted(tally.resident_bytes.items())},
    }


def _agreement(tally: Tally) -> dict[str, object]:
    """Rank agreement of the tiers, and what the fast one refused though the slow one wants it.

    A missed winner gained at least the campaign's smallest worthwhile effect in the slow tier.
    """
    fast = {v.candidate: v for v in tally.verdicts if v.tier == "fast" and v.interval}
    slow = {v.candidate: v for v in tally.verdicts if v.tier == "slow" and v.interval}
    both = sorted((id for id in fast if id in slow), key=lambda id: _effect(slow[id]))
    for id in both:
        f, s = fast[id], slow[id]
        _say(
            f"  fast {math.exp(_effect(f)):.3f} {f.word:12s} "
            f"slow {math.exp(_effect(s)):.3f} {s.word:12s} {tally.labels[id or '']}"
        )
    found = agreement([_effect(fast[id]) for id in both], [_effect(slow[id]) for id in both])
    worth = [slow[id] for id in both if _effect(slow[id]) >= MIN_EFFECT]
    missed = missed_winners([fast[id] for id in both], worth)
    return {
        "kendall_tau": found.tau,
        "kendall_tau_95": [found.low, found.high],
        "graded": found.count,
        "graded_within_20pct": sum(abs(_effect(slow[id])) <= math.log(1.2) for id in both),
        "missed_winners": len(missed),
    }


def _effect(verdict: Verdict) -> float:
    """Log-ratio of candidate to start."""
    assert verdict.interval is not None
    return math.log(verdict.interval.estimate)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
