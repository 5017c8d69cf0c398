"""One pair: the same requests to both sides, timed one after the other or in turns.

In turns, the side that goes first serves for a few milliseconds and on to its next output, then it
is frozen and the other one catches up: both have done the same work. Who goes first is drawn for
each turn, so that each is evidence of its own. What a shared machine does over tenths of a second
hits both sides alike. A turn's clock starts before the side is woken and stops when it has been
stopped, so nothing runs unseen.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from engine_host import processes
from engine_host.block import Place, Quiet, Serving, Turn, Used, block_sample, run_block, serve
from engine_host.errors import TrialFailedError
from engine_host.trial_process import TrialProcess
from protos.trial import BlockSample, PairScript, RequestSample

TURN_S = 0.01
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
    steal_ns = processes.steal_ns()
    others_ns = sum(process.usage().cpu_ns for process in others)
    gc.disable()
    try:
        for coin in itertools.cycle(pair.turns or pair.first):
            waiting = sorted(
                (lane for lane in lanes if lane.serving.open), key=lambda lane: lane.side != coin
            )
            if not waiting:
                break
            waiting[0].take_turn(Turn(least_s=TURN_S))
            for lane in waiting[1:]:
                lane.take_turn(Turn(tokens=waiting[0].serving.tokens))
    finally:
        gc.enable()
    for lane in lanes:
        lane.look()
    others_ns = sum(process.usage().cpu_ns for process in others) - others_ns
    steal_ns = max(0, processes.steal_ns() - steal_ns)
    return [
        lane.sample(Place(number, start, lane.side, position), others_ns, rival, steal_ns, quiet)
        for position, (lane, rival) in enumerate(zip(lanes, reversed(lanes), strict=True))
    ]


class _Lane:
    """One side of a pair in turns: what it served, and what it used in its turns and between."""

    def __init__(self, side: Name, process: TrialProcess, pair: PairScript, limit_s: float) -> None:
        self.side = side
        self._process = process
        self.serving = Serving(process, pair.requests, limit_s)
        self._stopped_ns = time.monotonic_ns()
        self._cpu_ns = self._waited_ns = self.idle_cpu_ns = 0
        self._turn_ns: list[int] = []
        self._turn_tokens: list[int] = []
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

    def look(self) -> None:
        """Note what the side used since it was stopped, when it should have used nothing."""
        now = self._process.usage()
        self.idle_cpu_ns += max(0, now.cpu_ns - self._seen.cpu_ns)
        self._seen = now

    def take_turn(self, turn: Turn) -> None:
        self.look()
        before_ns, before = time.monotonic_ns(), self.serving.tokens
        try:
            self._stopped_ns = self.serving.turn(self._stopped_ns, turn)
        except TrialFailedError as error:
            raise SideFailedError(self.side, error) from error
        finally:
            self._stand_still()
        used = self._process.usage()
        self._turn_ns.append(self._stopped_ns - before_ns)
        self._turn_tokens.append(self.serving.tokens - before)
        self._cpu_ns += max(0, used.cpu_ns - self._seen.cpu_ns)
        self._waited_ns += max(0, used.waited_ns - self._seen.waited_ns)
        self._seen = used

    def sample(
        self, place: Place, others_ns: int, rival: _Lane, steal_ns: int, quiet: Quiet
    ) -> BlockSample:
        """The block; `rival` is who had to stand still in its turns."""
        served = self.serving.served()
        # Threads that wait for each other's core were kept waiting by nobody else.
        left_ns = max(0, processes.CORES * sum(self._turn_ns) - self._cpu_ns)
        used = Used(
            self._cpu_ns,
            rival.idle_cpu_ns + others_ns,
            min(self._waited_ns, left_ns),
            steal_ns,
            tuple(self._turn_ns),
            tuple(self._turn_tokens),
        )
        return block_sample(place, served, used, quiet, self._warm_up)
