"""One pair: the same requests to both sides, timed one after the other or in turns.

In turns, both sides go on to the same number of outputs, in slices of a few milliseconds: one runs,
is frozen wherever it is, and the other runs. Who goes first is drawn for each couple of slices, so
that each turn is evidence of its own, and what a shared machine does over hundredths of a second
hits both sides alike. A slice's clock starts before the side is woken and stops when it has been
stopped, so nothing runs unseen.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from engine_host import processes
from engine_host.block import Place, Quiet, Serving, Slice, Used, block_sample, run_block, serve
from engine_host.errors import TrialFailedError
from engine_host.processes import Usage
from engine_host.trial_process import TrialProcess
from protos.trial import BlockSample, PairScript, RequestSample

TURN_S = 0.01  # of the side that takes longer, at least
SLICE_S = 0.004
Name = Literal["A", "B"]


class SideFailedError(Exception):
    """A side broke while a pair was timed; `failure` says how."""

    def __init__(self, side: Name, failure: TrialFailedError) -> None:
        super().__init__(f"side {side}: {failure.detail}")
        self.side, self.failure = side, failure


def closed_loop(pair: PairScript) -> bool:
    """Whether every request is sent at once: only then can a side be stopped in between."""
    return all(request.at_s == 0.0 for request in pair.requests)


def _order(pair: PairScript) -> tuple[Name, Name]:
    return ("A", "B") if pair.first == "A" else ("B", "A")


def one_after_the_other(
    sides: Mapping[Name, TrialProcess],
    others: Sequence[TrialProcess],
    pair: PairScript,
    number: int,
    start: int,
    limit_s: float,
    quiet: Quiet,
) -> list[BlockSample]:
    """Blocks in the pair's order. Raises SideFailedError."""
    blocks = []
    for position, side in enumerate(_order(pair)):
        frozen = [*(process for name, process in sides.items() if name != side), *others]
        place = Place(number, start, side, position)
        try:
            blocks.append(run_block(sides[side], frozen, pair, place, limit_s, quiet))
        except TrialFailedError as error:
            raise SideFailedError(side, error) from error
    return blocks


def in_turns(
    sides: Mapping[Name, TrialProcess],
    others: Sequence[TrialProcess],
    pair: PairScript,
    number: int,
    start: int,
    limit_s: float,
    quiet: Quiet,
) -> list[BlockSample]:
    """Both sides' blocks in turns, in the order of the pair's coins. Raises SideFailedError."""
    lanes = [_Lane(side, sides[side], pair, limit_s) for side in _order(pair)]
    for lane in lanes:
        lane.make_ready(pair, limit_s)
    before = processes.machine()
    frozen_ns = sum(process.usage().cpu_ns for process in others)
    gc.disable()
    try:
        coins = itertools.cycle(pair.turns or pair.first)
        while waiting := [lane for lane in lanes if lane.serving.open]:
            _take_turn(waiting, coins)
    finally:
        gc.enable()
    for lane in lanes:
        lane.look()
    after = processes.machine()
    frozen_ns = sum(process.usage().cpu_ns for process in others) - frozen_ns
    around = _Around(
        frozen_ns,
        before.others_ns(after, sum(lane.cpu_ns + lane.idle_cpu_ns for lane in lanes)),
        before.stolen_ns(after),
    )
    return [
        lane.sample(Place(number, start, lane.side, position), rival, around, quiet)
        for position, (lane, rival) in enumerate(zip(lanes, reversed(lanes), strict=True))
    ]


@dataclass(frozen=True)
class _Around:
    """Processor time of a pair that was not its sides': of engines that should stand still, of
    all else that ran, and stolen."""

    frozen_ns: int
    others_ns: int
    steal_ns: int


def _take_turn(lanes: Sequence[_Lane], coins: Iterator[str]) -> None:
    """Both lanes on to the same number of tokens, or to the end of one that has no more."""
    for lane in lanes:
        lane.begin_turn()
    while True:
        goal = 1 + max(lane.serving.tokens for lane in lanes)
        while behind := [lane for lane in lanes if lane.is_behind(goal)]:
            coin = next(coins)
            most_s = SLICE_S if len(behind) > 1 else None
            for lane in sorted(behind, key=lambda lane: lane.side != coin):
                lane.run_slice(Slice(goal, most_s))
        if not all(lane.serving.open for lane in lanes):
            return
        if max(lane.turn_ns for lane in lanes) >= TURN_S * 1e9:
            return


class _Lane:
    """One side of a pair in turns: what it served, and what it used in its turns and between."""

    def __init__(self, side: Name, process: TrialProcess, pair: PairScript, limit_s: float) -> None:
        self.side = side
        self._process = process
        self.serving = Serving(process, pair.requests, limit_s)
        self._stopped_ns = time.monotonic_ns()
        self.cpu_ns = self._waited_ns = self.idle_cpu_ns = 0
        self._turns_ns: list[int] = []
        self._turns_tokens: list[int] = []
        self._warm_up: tuple[RequestSample, ...] = ()

    def make_ready(self, pair: PairScript, limit_s: float) -> None:
        """Reset and warm up, untimed, and stand still."""
        self._process.thaw()
        try:
            if pair.reset:
                self._process.ask("reset", "block", limit_s)
            if pair.warm_up:
                self._warm_up = serve(self._process, pair.warm_up, limit_s).requests
        except TrialFailedError as error:
            raise SideFailedError(self.side, error) from error
        finally:
            self._stand_still()
        self._seen = self._process.usage()
        self.serving = Serving(self._process, pair.requests, limit_s)
        self._stopped_ns = time.monotonic_ns()

    def _stand_still(self) -> None:
        try:
            self._process.stand_still("block")
        except TrialFailedError as error:
            raise SideFailedError(self.side, error) from error

    def look(self, now: Usage | None = None) -> None:
        """Note what the side used since it was stopped, when it should have used nothing."""
        now = now or self._process.usage()
        self.idle_cpu_ns += max(0, now.cpu_ns - self._seen.cpu_ns)
        self._seen = now

    @property
    def turn_ns(self) -> int:
        """What this turn took so far."""
        return self._turns_ns[-1]

    def begin_turn(self) -> None:
        self._turns_ns.append(0)
        self._turns_tokens.append(0)

    def is_behind(self, goal: int) -> bool:
        return self.serving.open and self.serving.tokens < goal

    def run_slice(self, slice_: Slice) -> None:
        self.look(self._process.usage_when_still())
        before_ns, before = time.monotonic_ns(), self.serving.tokens
        try:
            self._stopped_ns = self.serving.run_slice(self._stopped_ns, slice_)
        except TrialFailedError as error:
            raise SideFailedError(self.side, error) from error
        finally:
            self._stand_still()
        used = self._process.usage_when_still()
        self._turns_ns[-1] += self._stopped_ns - before_ns
        self._turns_tokens[-1] += self.serving.tokens - before
        self.cpu_ns += max(0, used.cpu_ns - self._seen.cpu_ns)
        self._waited_ns += max(0, used.waited_ns - self._seen.waited_ns)
        self._seen = used

    def sample(self, place: Place, rival: _Lane, around: _Around, quiet: Quiet) -> BlockSample:
        """The block; `rival` is who had to stand still in its turns."""
        served = self.serving.served()
        # Threads that wait for each other's core were kept waiting by nobody else.
        left_ns = max(0, processes.CORES * sum(self._turns_ns) - self.cpu_ns)
        used = Used(
            self.cpu_ns,
            rival.idle_cpu_ns + around.frozen_ns,
            min(self._waited_ns, left_ns, around.others_ns),
            around.steal_ns,
            tuple(self._turns_ns),
            tuple(self._turns_tokens),
        )
        return block_sample(place, served, used, quiet, self._warm_up)
