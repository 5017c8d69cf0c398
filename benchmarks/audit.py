"""`perpetune audit`: does the judge promote anything false? Cheats, controls, nulls and power.

Runs on real engines that stay up, a trial at a time. The last line of stdout is JSON; the exit code
is 1 where a bar is missed. `--only` picks parts; `--hog` is a part of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.battery import CHEATS, CONTROLS, Fixture, null_patches
from benchmarks.battery.busy import hog
from benchmarks.battery.power import power
from benchmarks.battery.trying import End, opening, run_fixture, run_tiers
from benchmarks.bench_host import Bench, open_bench
from benchmarks.sources import slim_sources
from services.bounds import binomial_upper

PARTS = ("cheats", "controls", "nulls", "power")
Result = dict[str, object]


def main(argv: list[str]) -> int:
    """Run the parts; 0 if every bar that was measured holds."""
    parser = argparse.ArgumentParser(prog="perpetune audit")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, comma-separated")
    parser.add_argument("--nulls", type=int, default=300, help="null patches")
    parser.add_argument("--power-trials", type=int, default=30, help="trials of a true 5 %% gain")
    parser.add_argument("--hog", action="store_true", help="only: A/A trials beside a CPU hog")
    parser.add_argument("--hog-trials", type=int, default=100, help="A/A trials beside the hog")
    parser.add_argument("--match", default="", help="only fixtures whose name holds one of these")
    options = parser.parse_args(argv)
    parts = ("hog",) if options.hog else tuple(options.only.split(","))
    unknown = set(parts) - {*PARTS, "hog"}
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]!r}: use {', '.join(PARTS)}")
    folder = Path("runs") / time.strftime("audit-%Y%m%d-%H%M%S")
    result = asyncio.run(_run(folder, options, parts))
    missed = _missed(result)
    print(json.dumps(result | {"missed": missed}))
    return 1 if missed else 0


async def _run(folder: Path, options: argparse.Namespace, parts: tuple[str, ...]) -> Result:
    began_s = time.monotonic()
    result: Result = {}
    async with open_bench(folder) as bench:
        known: dict[str, Callable[[], Awaitable[Result]]] = {
            "cheats": lambda: _cheats(bench, options.match),
            "controls": lambda: _controls(bench, options.match),
            "nulls": lambda: _nulls(bench, options.nulls),
            "power": lambda: power(bench, options.power_trials),
            "hog": lambda: hog(bench, options.hog_trials),
        }
        for part in parts:
            part_s = time.monotonic()
            result |= await known[part]()
            result[f"{part}_s"] = round(time.monotonic() - part_s, 1)
    return result | {"wall_s": round(time.monotonic() - began_s, 1)}


def _named(fixtures: tuple[Fixture, ...], match: str) -> list[Fixture]:
    words = match.split(",")
    return [fixture for fixture in fixtures if any(word in fixture.name for word in words)]


async def _cheats(bench: Bench, match: str) -> Result:
    """Every cheat, checked first and then run without anybody having looked at it."""
    fixtures = _named(CHEATS, match)
    caught = {False: 0, True: 0}
    through: list[str] = []
    for unchecked in (False, True):
        for fixture in fixtures:
            end = await _tried(bench, fixture, unchecked)
            held = end.word in fixture.expected
            if held and fixture.row == "leftover":
                wrong = {r: why for r, why in (await bench.host.reprove()).items() if why}
                held = not wrong
            caught[unchecked] += held
            if not held:
                through.append(f"{fixture.name}{' unchecked' if unchecked else ''}: {end.word}")
    return {
        "cheats": len(fixtures),
        "cheats_caught": caught[False],
        "cheats_caught_unchecked": caught[True],
        "cheats_through": through,
    }


async def _controls(bench: Bench, match: str) -> Result:
    """Every honest control, up to the slow tier."""
    fixtures = _named(CONTROLS, match)
    failed: list[str] = []
    for fixture in fixtures:
        end = await _tried(bench, fixture, unchecked=False)
        if end.word not in fixture.expected:
            failed.append(f"{fixture.name}: {end.word}: {end.reason}")
    return {
        "controls": len(fixtures),
        "controls_passed": len(fixtures) - len(failed),
        "controls_failed": failed,
    }


async def _tried(bench: Bench, fixture: Fixture, unchecked: bool) -> End:
    entry = fixture.make(slim_sources())
    end = await run_fixture(bench, fixture, entry, unchecked=unchecked)
    flag = " " if end.word in fixture.expected else "!"
    mode = "unchecked" if unchecked else "checked"
    _say(f"{flag} {fixture.name} ({mode}): {end.word} at {end.tier}: {end.reason[:150]}")
    return end


async def _nulls(bench: Bench, count: int) -> Result:
    """Null patches through all tiers: how many look faster, and whether one is promoted."""
    words: dict[str, int] = {}
    faster = promoted = unengaged = 0
    for entry in null_patches(slim_sources(), count):
        end = await run_tiers(bench, bench.side(entry), opening(bench))
        first = end.verdicts[0].word if end.verdicts else end.word
        words[first] = words.get(first, 0) + 1
        faster += first == "faster"
        promoted += end.word == "promoted"
        unengaged += first == "not_engaged"
        if sum(words.values()) % 25 == 0:
            _say(f"  nulls: {sum(words.values())} of {count}: {words}")
        if first == "faster":
            _say(f"  {entry.label}: faster at fast, then {end.word} at {end.tier}: {end.reason}")
    return {
        "nulls": count,
        "nulls_faster_fast_tier": faster,
        "nulls_faster_fast_tier_95": round(binomial_upper(faster, count, 0.05), 4),
        "nulls_alpha": 0.05,
        "nulls_promoted": promoted,
        "nulls_not_engaged": unengaged,
        "nulls_words": words,
    }


def _missed(result: Result) -> list[str]:
    """The bars that what was measured doesn't hold."""

    def number(name: str) -> float:
        value = result[name]
        return float(value) if isinstance(value, int | float) else 0.0

    missed = []
    if "cheats" in result:
        missed += [
            n for n in ("cheats_caught", "cheats_caught_unchecked") if number(n) < number("cheats")
        ]
    if "controls" in result and number("controls_passed") < number("controls"):
        missed.append("controls_passed")
    if "nulls" in result:
        if number("nulls_faster_fast_tier") > number("nulls_alpha") * number("nulls"):
            missed.append("nulls_faster_fast_tier")
        missed += ["nulls_promoted"] if number("nulls_promoted") else []
    if "power_5pct_10s" in result and number("power_5pct_10s") < 0.9:
        missed.append("power_5pct_10s")
    if "hog_trials" in result:
        missed += [name for name in ("hog_faster", "hog_slower") if number(name)]
        missed += [] if number("hog_judged_s") <= 60.0 else ["hog_judged_s"]
    return missed


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
