"""One lease, from grant to evidence: start both sides, time pairs until the rule stops, grade.

Blocks; runs in the host's one measuring thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from engine_host import engagement, grading, quality
from engine_host.bandwidth import Bandwidth
from engine_host.block import Quiet, Served, serve
from engine_host.errors import EngineLostError, NotHotError, TrialFailedError
from engine_host.judge_port import JudgeBridge, Revealed
from engine_host.pairs import SideFailedError, closed_loop, in_turns, one_after_the_other
from engine_host.residency import SLOWER, Residency
from engine_host.trial_process import EngagedError, TrialProcess
from protos.metrics import failures, pair_units
from protos.stopping import decide
from protos.trial import BlockSample, Evidence, Lease, PairScript, Request, Script
from services.telemetry import span

Progress = Callable[[str, int], None]
EARLY_LOOK = 2  # counted pairs after which outputs that differ are looked at once


@dataclass
class Record:
    """What is known of a trial so far; becomes its evidence."""

    lease: Lease
    commitment: str = ""
    script: str | None = None
    rung: str = ""
    phases_s: dict[str, float] = field(default_factory=dict)
    blocks: list[BlockSample] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)

    def evidence(self, host: str) -> Evidence:
        lease = self.lease
        return Evidence(
            trial=lease.trial,
            epoch=lease.epoch,
            attempt=lease.attempt,
            host=host,
            lease=lease,
            commitment=self.commitment,
            script=self.script,
            rung=self.rung,
            phases_s=self.phases_s,
            blocks=tuple(self.blocks),
            device_s=time.monotonic() - self.began_s,
            **self.found,
        )


@contextmanager
def phase(record: Record, name: str) -> Iterator[None]:
    """Notes how long a part of a trial took, as a span too."""
    began_s = time.monotonic()
    try:
        with span(f"trial {name}", trial=record.lease.trial):
            yield
    finally:
        spent_s = time.monotonic() - began_s
        record.phases_s[name] = record.phases_s.get(name, 0.0) + spent_s


class Measurement:
    """Runs one resident trial. A finding about the patch is evidence, never an error.

    Raises EngineLostError when an engine of the host's own is to blame.
    """

    def __init__(
        self,
        residency: Residency,
        lease: Lease,
        judge: JudgeBridge,
        host: str,
        quiet: Quiet,
        progress: Progress = lambda *_: None,
        bandwidth: Bandwidth | None = None,
    ) -> None:
        self._residency, self._lease, self._judge = residency, lease, judge
        self._host, self._quiet, self._progress = host, quiet, progress
        self._bandwidth = bandwidth
        self._record = Record(lease)
        self._a: TrialProcess
        self._b: TrialProcess | None = None

    def run(self) -> Evidence:
        record, lease = self._record, self._lease
        record.commitment = self._judge.commit(lease.trial, lease.epoch)
        self._a = self._incumbent()
        try:
            self._measure()
        except TrialFailedError as error:
            record.found |= {"failure": error.phase, "detail": error.detail}
        except EngagedError as error:
            record.found |= {"failure": "block", "detail": str(error)}
        finally:
            with phase(record, "end"):
                self._end()
        return record.evidence(self._host)

    def _incumbent(self) -> TrialProcess:
        """Side A. A fresh one serves a request first, untimed, as side B does."""
        limits = self._lease.plan.limits
        process, fresh = self._residency.incumbent(self._lease.side_a, limits)
        if fresh:
            try:
                process.thaw()
                serve(process, [first_request(self._residency.model.vocab)], limits.start_s)
                process.freeze()
            except TrialFailedError as error:
                self._residency.forget_kept()
                raise EngineLostError(f"side A: {error.detail}") from error
        return process

    def _measure(self) -> None:
        record, lease = self._record, self._lease
        self._progress("starting", 0)
        self._start_b()
        if self._never_loaded():
            return
        revealed = self._judge.reveal(lease)
        record.script = revealed.digest
        with phase(record, "pairs"):
            decision = self._pairs(revealed)
        self._progress("grading", len(record.blocks) // 2)
        with phase(record, "counters"):
            record.found["counters"] = self._counters()
        if decision == "hopeless":
            return
        with phase(record, "grading"):
            self._grade(revealed.script, decision)
        with phase(record, "engagement"):
            self._prove(revealed.script)

    def _start_b(self) -> None:
        """From having the patch to first tokens of the patched engine."""
        record, lease = self._record, self._lease
        limits, side = lease.plan.limits, lease.side_b
        began_s = time.monotonic()
        with phase(record, "fork"):
            rung = lease.plan.force_rung or side.rung
            self._b = self._residency.candidate(side, rung, limits)
        record.rung = self._b.rung
        with phase(record, "load"):
            self._load()
        with phase(record, "prepare"):
            self._b.ask("prepare", "prepare", limits.prepare_s)
        before_s = time.monotonic() - began_s
        served = serve(self._b, [first_request(self._residency.model.vocab)], limits.start_s)
        note_first_tokens(record, before_s, served)
        # A fresh fork pays for its first writes to pages; side A has paid long ago.
        serve(self._b, [settling_request(self._residency.model.vocab)], limits.start_s)
        self._b.freeze()

    def _never_loaded(self) -> bool:
        """Whether timing would decide nothing, as the change can't have run."""
        if self._b is None or self._lease.plan.starts > 0:
            return False
        self._b.thaw()
        detail = engagement.never_loaded(self._b, self._lease)
        self._b.freeze()
        if detail is not None:
            self._record.found |= {"engaged": False, "engaged_detail": detail}
        return detail is not None

    def _load(self) -> None:
        limits, side = self._lease.plan.limits, self._lease.side_b
        assert self._b is not None
        try:
            self._residency.load(self._b, side, limits.start_s)
        except NotHotError as error:
            self._record.found["reproof"] = f"{self._b.rung} refused: {error}"
            self._b.end()
            self._b = self._residency.candidate(side, SLOWER[self._b.rung], limits)
            self._record.rung = self._b.rung
            self._load()

    def _pairs(self, revealed: Revealed) -> str:
        """Run pairs until the declared rule stops. Returns what it said."""
        script, ratios, counted = revealed.script, list[float](), 0
        for number in range(len(script.pairs)):
            found = self._pair(script, number)
            if found == "failed":
                return found
            if found == "void":
                continue
            ratios += found
            counted += 1
            decision = decide(ratios, self._lease.plan.rule)
            if decision == "continue" and counted == EARLY_LOOK and self._hopeless(script):
                return "hopeless"
            if decision != "continue":
                return decision
        return "inconclusive"

    def _hopeless(self, script: Script) -> bool:
        """Whether outputs that differ from A's are so far off that timing on decides nothing."""
        plan, found = self._lease.plan, self._record.found
        if plan.hopeless_gap is None or plan.grade_requests == 0:
            return False
        drawn = grading.draw(self._record.blocks, script, 1)
        if not drawn or drawn[0].same:
            return False
        grades, noise_gap = grading.grade(self._residency.reference(), drawn)
        if max((gap for one in grades for gap in one.gaps), default=0.0) <= plan.hopeless_gap:
            return False
        found |= {"grades": grades, "noise_gap": noise_gap, "hopeless": True}
        return True

    def _pair(
        self, script: Script, number: int, start: int = 0
    ) -> list[float] | Literal["void", "failed"]:
        """Run one pair and note its blocks; what it gives the rule, or why there is nothing."""
        self._progress("timing", number)
        self._keep_to_lease()
        pair, metric = script.pairs[number], self._lease.objective.metric
        blocks = self._blocks(pair, number, start)
        self._record.blocks += blocks
        a, b = sorted(blocks, key=lambda block: block.side)
        self._check_tokens(b)
        if failures(a, pair.requests):
            raise EngineLostError(f"side A: {failures(a, pair.requests)[0]}")
        if failures(b, pair.requests):
            return "failed"
        if a.void or b.void:
            return "void"
        units = pair_units(metric, a, b, self._lease.plan.rule.unit)
        if units is None:
            raise EngineLostError(f"{metric} isn't measured by this workload")
        return units

    def _keep_to_lease(self) -> None:
        """A holder whose lease runs out stops by itself; whose fault it is shows in the blocks."""
        lease, record = self._lease, self._record
        if time.monotonic() - record.began_s <= lease.expires_s:
            return
        spent_ns = {"A": 0, "B": 0}
        for block in record.blocks:
            spent_ns[block.side] += block.wall_ns
        if spent_ns["B"] > 2 * spent_ns["A"]:
            raise TrialFailedError("block", f"the trial took more than {lease.expires_s:g} s")
        raise EngineLostError(f"the lease of {lease.expires_s:g} s ran out")

    def _check_tokens(self, block: BlockSample) -> None:
        """The reference can't score what is no token."""
        vocab = self._residency.model.vocab
        for sample in (*block.requests, *block.warm_up):
            if any(not 0 <= token < vocab for token in sample.tokens):
                raise TrialFailedError(
                    "block", f"request {sample.id} has tokens outside 0..{vocab - 1}"
                )

    def _blocks(self, pair: PairScript, number: int, start: int) -> list[BlockSample]:
        """Both sides' blocks of one pair, in its order: in turns where the load allows it."""
        assert self._b is not None
        sides: dict[Literal["A", "B"], TrialProcess] = {"A": self._a, "B": self._b}
        others = [p for p in self._residency.others(self._a) if p is not self._b]
        run_pair = in_turns if closed_loop(pair) else one_after_the_other
        limit_s = self._lease.plan.limits.block_s
        try:
            return run_pair(sides, others, pair, number, start, limit_s, self._quiet)
        except SideFailedError as error:
            if error.side == "A":
                self._residency.forget_kept()
                raise EngineLostError(f"side A: {error.failure.detail}") from error
            raise error.failure from error

    def _counters(self) -> dict[str, int]:
        assert self._b is not None
        self._b.thaw()
        found = self._b.ask("counters", "block", self._lease.plan.limits.block_s)
        self._b.freeze()
        if not isinstance(found, dict):
            return {}
        counted = {str(k)[:60]: v for k, v in list(found.items())[:30] if type(v) is int}
        return counted | self._physics()

    def _physics(self) -> dict[str, int]:
        """What the physical floor is made of; the trial's own word on it is overwritten."""
        per_pass = int(self._residency.model.facts.get("bytes_per_pass") or 0)
        known = self._bandwidth.bytes_s() if per_pass and self._bandwidth else None
        return {"bytes_per_pass": per_pass, "bandwidth_bytes_s": known or 0}

    def _grade(self, script: Script, decision: str) -> None:
        """Grade what decides something: a gain in full, anything else by a few outputs."""
        plan, found = self._lease.plan, self._record.found
        most = plan.grade_requests if decision == "faster" else min(2, plan.grade_requests)
        drawn = grading.draw(self._record.blocks, script, most)
        # Outputs that are the incumbent's own, for no gain: a score would decide nothing.
        if drawn and (decision == "faster" or not drawn[0].same):
            reference = self._residency.reference()
            found["grades"], found["noise_gap"] = grading.grade(reference, drawn)
        if script.quality and (plan.starts > 0 or not all(one.same for one in drawn)):
            self._measure_quality(script)

    def _measure_quality(self, script: Script) -> None:
        """Both sides and the start on the fixed set; where it decides nothing, it may fail."""
        assert self._b is not None
        lease = self._lease
        sides: tuple[tuple[Literal["A", "B"], TrialProcess], ...] = (
            ("A", self._a),
            ("B", self._b),
        )
        reference, vocab = self._residency.reference(), self._residency.model.vocab
        limit_s = lease.plan.limits.block_s
        try:
            found = quality.measure(reference, sides, script.quality, limit_s, vocab)
        except (TrialFailedError, EngineLostError):
            if lease.objective.output_class == "quality":
                raise
            return  # the closing trial's gain stands without it
        self._record.found["quality"] = found

    def _prove(self, script: Script) -> None:
        lease, found = self._lease, self._record.found
        if not (lease.plan.prove_engagement and lease.side_b.changed) or self._b is None:
            return
        request = shortest(script)
        engaged, detail = engagement.prove(self._residency, self._b, lease, request)
        found["engaged"], found["engaged_detail"] = engaged, detail

    def _end(self) -> None:
        self._a.freeze()
        if self._b is not None and not self._b.end():
            raise EngineLostError("a process of the trial survived its end")


def note_first_tokens(record: Record, before_s: float, served: Served) -> None:
    """`start`, `first_tokens`: from having the patch to the patched engine's first token."""
    (sample,) = served.requests
    if not sample.token_ns:
        raise TrialFailedError("start", sample.error or "the first request got no tokens")
    spent_s = before_s + sample.token_ns[0] / 1e9
    record.phases_s["start"] = record.phases_s["first_tokens"] = spent_s


def first_request(vocab: int) -> Request:
    """The untimed request that shows first tokens: nothing in it comes from the script."""
    return Request(id=0, prompt=tuple(range(1, min(4, vocab - 1))), max_tokens=2)


def settling_request(vocab: int) -> Request:
    """The untimed request after the first: as long as a short block's, over other tokens."""
    return Request(id=0, prompt=tuple(range(8, min(16, vocab - 1))), max_tokens=3)


def shortest(script: Script) -> Request:
    """The script's cheapest request, sent at once."""
    requests = [request for pair in script.pairs for request in pair.requests]
    found = min(requests, key=lambda request: len(request.prompt) + 8 * request.max_tokens)
    return Request(id=found.id, prompt=found.prompt, max_tokens=min(4, found.max_tokens))
