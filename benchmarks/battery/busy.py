"""A neighbour that comes and goes: no verdict may follow from it, and it must not cost long."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time

from benchmarks.battery.power import calibrated, start_as_candidate
from benchmarks.battery.trying import opening
from benchmarks.bench_host import Bench
from scheduler.plans import plan_for
from services.processes import die_with_parent

GAIN = 1.2
SPELL_S = (0.1, 2.0)  # how long it stays, and how long it is away
_SPIN = "while True: pass"


class Hog:
    """Processes that use a core each, started and ended at random moments. An async context."""

    def __init__(self, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._running: list[subprocess.Popen[bytes]] = []

    async def __aenter__(self) -> Hog:
        self._task = asyncio.create_task(self._come_and_go())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._leave()

    async def _come_and_go(self) -> None:
        while True:
            self._come(self._chance.choice((1, 2)))
            await asyncio.sleep(self._chance.uniform(*SPELL_S))
            self._leave()
            await asyncio.sleep(self._chance.uniform(*SPELL_S))

    def _come(self, count: int) -> None:
        command = [sys.executable, "-S", "-c", _SPIN]
        for _ in range(count):
            self._running.append(subprocess.Popen(command, preexec_fn=die_with_parent()))

    def _leave(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()


async def hog(bench: Bench, trials: int) -> dict[str, object]:
    """A/A trials beside the hog; then how soon after it left a true gain of 20 % is judged."""
    planted = await calibrated(bench, GAIN, "hog")
    plan = plan_for(opening(bench), "fast", "")
    words: dict[str, int] = {}
    voided = 0
    async with Hog():
        for _ in range(trials):
            _, evidence = await bench.run(start_as_candidate(bench), plan)
            verdict = bench.verdict(evidence)
            words[verdict.word] = words.get(verdict.word, 0) + 1
            voided += verdict.voided_blocks
            print(f"  hog: {verdict.word}: {verdict.reason}", file=sys.stderr, flush=True)
    left_s = time.monotonic()
    tries = 0
    word = ""
    while word != "faster" and time.monotonic() - left_s < 120.0:
        _, evidence = await bench.run(start_as_candidate(bench), plan, planted.side)
        word, tries = bench.verdict(evidence).word, tries + 1
    return {
        "hog_trials": trials,
        "hog_faster": words.get("faster", 0),
        "hog_slower": words.get("slower", 0),
        "hog_words": words,
        "hog_voided_blocks": voided,
        "hog_judged_s": round(time.monotonic() - left_s, 1),
        "hog_judged_word": word,
        "hog_judged_tries": tries,
    }
