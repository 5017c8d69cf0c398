"""Cold trials: each unit is one engine start from disk on each side, with a few pairs of blocks."""

from __future__ import annotations

import time

from engine_host.block import serve
from engine_host.errors import EngineLostError, TrialFailedError
from engine_host.judge_port import Revealed
from engine_host.measure import Measurement, first_request, note_first_tokens, phase
from engine_host.trial_process import TrialProcess
from protos.stopping import decide
from protos.trial import Evidence, Side


class ColdMeasurement(Measurement):
    """Runs one cold trial: new interpreters, trees laid out on disk, both sides alike.

    Both start at the same time; then only one runs. The rule counts starts.
    """

    def run(self) -> Evidence:
        record, lease = self._record, self._lease
        record.rung = "cold"
        record.commitment = self._judge.commit(lease.trial, lease.epoch)
        self._sides: list[TrialProcess] = []
        try:
            self._measure()
        except TrialFailedError as error:
            record.found |= {"failure": error.phase, "detail": error.detail}
        finally:
            with phase(record, "end"):
                self._end_sides()
        return record.evidence(self._host)

    def _start_b(self) -> None:
        """The first start of both sides; the script is asked for once B is ready."""
        self._end_sides()
        lease = self._lease
        limits, began_s = lease.plan.limits, time.monotonic()
        with phase(self._record, "load"):
            for side in (lease.side_a, lease.side_b):
                self._sides.append(self._launch(side))
            self._a, self._b = self._sides
            for process, side in zip(self._sides, (lease.side_a, lease.side_b), strict=True):
                self._ready(process, side)
        for process in self._sides:
            before_s = time.monotonic() - began_s
            served = serve(process, [first_request(self._residency.model.vocab)], limits.start_s)
            process.freeze()
        note_first_tokens(self._record, before_s, served)

    def _launch(self, side: Side) -> TrialProcess:
        limits = self._lease.plan.limits
        process = self._residency.candidate(side, "cold", limits)
        self._residency.begin_load(process, side, limits.start_s)
        return process

    def _ready(self, process: TrialProcess, side: Side) -> None:
        limits = self._lease.plan.limits
        try:
            self._residency.loaded(process, side, limits.start_s)
            process.ask("prepare", "prepare", limits.prepare_s)
        except TrialFailedError as error:
            if process is self._a:
                raise EngineLostError(f"side A: {error.detail}") from error
            raise

    def _pairs(self, revealed: Revealed) -> str:
        plan, script = self._lease.plan, revealed.script
        means: list[float] = []
        for start in range(len(script.pairs) // plan.pairs_per_start):
            if start > 0:
                self._progress("starting", start * plan.pairs_per_start)
                self._start_b()
            ratios: list[float] = []
            for number in range(start * plan.pairs_per_start, (start + 1) * plan.pairs_per_start):
                found = self._pair(script, number, start)
                if found == "failed":
                    return found
                ratios += found if isinstance(found, list) else []
            if ratios:
                means.append(sum(ratios) / len(ratios))
                decision = decide(means, plan.rule)
                if decision != "continue":
                    return decision
        return "inconclusive"

    def _end_sides(self) -> None:
        sides, self._sides = self._sides, []
        if not all([process.end() for process in sides]):
            raise EngineLostError("a process of the trial survived its end")
