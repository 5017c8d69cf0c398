"""One timed block: the host sends requests on time and stamps what comes back.

Only the side under test runs; the other side's whole process tree is frozen and its processor time
is checked afterwards. The process under test is asked for nothing but its outputs.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from engine_host import processes
from engine_host.errors import TrialFailedError
from engine_host.trial_process import WATCH_EVERY_S, Message, TrialProcess
from protos.trial import BlockSample, PairScript, Request, RequestSample

FROZEN_CPU_ALLOWED_NS = 1_000_000
FINISHES = ("length", "stop")


@dataclass(frozen=True)
class Quiet:
    """When a block counts: what others may have taken from its side.

    `waited_share`: of the time its threads wanted to run. `steal_share`: of the machine's time.
    """

    waited_share: float = 0.10
    steal_share: float = 0.10


@dataclass
class _Running:
    request: Request
    sent_ns: int
    tokens: list[int] = field(default_factory=list)
    token_ns: list[int] = field(default_factory=list)
    finish: str | None = None
    error: str | None = None

    def sample(self) -> RequestSample:
        return RequestSample(
            self.request.id,
            self.sent_ns,
            tuple(self.tokens),
            tuple(self.token_ns),
            self.finish,
            self.error,
        )


@dataclass(frozen=True)
class Served:
    """What came back of some requests, and how long all of it took."""

    wall_ns: int
    requests: tuple[RequestSample, ...]


@dataclass(frozen=True)
class Slice:
    """How long a process may run: until it has put out `tokens` in all, `most_s` at most."""

    tokens: int
    most_s: float | None = None


class Serving:
    """Sends requests at their times and takes outputs until every request has ended.

    Its clock runs only while the process may: `run_slice` stops both at any point of its work.
    """

    def __init__(self, process: TrialProcess, requests: Sequence[Request], limit_s: float) -> None:
        self._process = process
        self._waiting = deque(sorted(requests, key=lambda request: request.at_s))
        self._order = [request.id for request in requests]
        self._running: dict[int, _Running] = {}
        self._open = 0
        self._limit_s = limit_s
        self._origin_ns = time.monotonic_ns()  # moves on by what passes while stopped
        self._last_ns = 0
        self.tokens = 0  # output tokens so far

    @property
    def open(self) -> bool:
        """Whether some request has not ended."""
        return bool(self._waiting or self._open)

    def run(self) -> Served:
        """Serve everything, without a stop."""
        self._origin_ns = time.monotonic_ns()
        self._serve(None)
        return self.served()

    def run_slice(self, stopped_ns: int, slice_: Slice) -> int:
        """Wake the process, serve for a slice, stop it.

        `stopped_ns` is what the last slice returned: when the clock was stopped.
        """
        self._origin_ns += time.monotonic_ns() - stopped_ns
        self._process.thaw()
        self._serve(slice_)
        self._process.halt()
        return time.monotonic_ns()

    def served(self) -> Served:
        """What came back so far; every request is in it once all have ended."""
        samples = tuple(self._running[number].sample() for number in self._order)
        return Served(self._last_ns, samples)

    def _serve(self, slice_: Slice | None) -> None:
        began_ns, ends_ns = time.monotonic_ns(), None
        if slice_ is not None and slice_.most_s is not None:
            ends_ns = began_ns + int(slice_.most_s * 1e9)
        while self.open:
            self._send_due()
            found = self._process.take(self._wait_s(ends_ns), "block")
            if found is not None:
                # A frame that came just before the last stop was not seen before this slice.
                self._last_ns = max(found[0], began_ns) - self._origin_ns
                self._note(self._last_ns, found[1])
            now_ns = time.monotonic_ns()
            if now_ns - self._origin_ns > self._limit_s * 1e9:
                raise TrialFailedError("block", f"took more than {self._limit_s:g} s")
            if slice_ is not None and self.tokens >= slice_.tokens:
                return
            if ends_ns is not None and now_ns >= ends_ns:
                return

    def _send_due(self) -> None:
        now_s = (time.monotonic_ns() - self._origin_ns) / 1e9
        due: list[dict[str, Any]] = []
        while self._waiting and self._waiting[0].at_s <= now_s:
            request = self._waiting.popleft()
            # Latencies count from the scheduled send: a host that is late can't flatter a side.
            self._running[request.id] = _Running(request, int(request.at_s * 1e9))
            self._open += 1
            due.append(_for_engine(request))
        if due:
            self._process.send({"op": "submit", "requests": due}, "block", self._limit_s)

    def _wait_s(self, ends_ns: int | None) -> float:
        now_ns = time.monotonic_ns()
        waits_s = [WATCH_EVERY_S]
        if self._waiting:
            waits_s.append(self._waiting[0].at_s - (now_ns - self._origin_ns) / 1e9)
        if ends_ns is not None:
            waits_s.append((ends_ns - now_ns) / 1e9)
        return max(0.0, min(waits_s))

    def _note(self, at_ns: int, message: Message) -> None:
        if "out" in message:
            outputs = message["out"]
            if not isinstance(outputs, list):
                raise TrialFailedError("block", "a step's outputs are no list")
            for output in outputs:
                self._output(at_ns, output)
        elif "failed" in message:
            running = self._get(message["failed"])
            running.error = str(message.get("error"))[:600]
            self._open -= 1
        else:
            raise TrialFailedError("block", str(message.get("error", "an unknown message"))[:600])

    def _output(self, at_ns: int, output: Any) -> None:
        if not isinstance(output, dict):
            raise TrialFailedError("block", "an output is no object")
        running = self._get(output.get("id"))
        tokens, finish = output.get("tokens"), output.get("finish")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise TrialFailedError("block", "an output's tokens are no integers")
        running.tokens += tokens
        running.token_ns += [at_ns] * len(tokens)
        self.tokens += len(tokens)
        if len(running.tokens) > running.request.max_tokens:
            raise TrialFailedError("block", f"request {running.request.id} has too many tokens")
        if finish is not None:
            if finish not in FINISHES:
                raise TrialFailedError("block", f"an unknown finish {str(finish)[:40]!r}")
            running.finish = finish
            self._open -= 1

    def _get(self, number: Any) -> _Running:
        running = self._running.get(number) if type(number) is int else None
        if running is None or running.finish is not None or running.error is not None:
            raise TrialFailedError("block", f"an output for no open request: {str(number)[:40]}")
        return running


def _for_engine(request: Request) -> dict[str, Any]:
    return {
        "id": request.id,
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": request.seed,
    }


def serve(process: TrialProcess, requests: Sequence[Request], limit_s: float) -> Served:
    """Serve requests to their end. Raises TrialFailedError when process or outputs break."""
    return Serving(process, requests, limit_s).run()


@dataclass(frozen=True)
class Place:
    """Where in a trial a block stands."""

    pair: int
    start: int
    side: Literal["A", "B"]
    position: int


def run_block(
    busy: TrialProcess,
    frozen: Sequence[TrialProcess],
    script: PairScript,
    place: Place,
    block_s: float,
    quiet: Quiet,
) -> BlockSample:
    """Time one side's block: wake it, reset, warm up, serve, freeze it again.

    `frozen` are the other engines that must not run meanwhile. Raises TrialFailedError.
    """
    busy.thaw()
    try:
        if script.reset:
            busy.ask("reset", "block", block_s)
        warm_up = serve(busy, script.warm_up, block_s).requests if script.warm_up else ()
        before = _Meter(busy, frozen)
        gc.disable()
        try:
            served = serve(busy, script.requests, block_s)
        finally:
            gc.enable()
        used = before.since()
    finally:
        busy.stand_still("block")
    return block_sample(place, served, used, quiet, warm_up)


@dataclass(frozen=True)
class Used:
    """Of one block: processor time of its side and of frozen ones, what others made it wait for,
    stolen time, turns."""

    busy_cpu_ns: int
    frozen_cpu_ns: int
    waited_ns: int
    steal_ns: int
    turn_ns: tuple[int, ...] = ()
    turn_tokens: tuple[int, ...] = ()


class _Meter:
    """Processor time of both sides and of the machine, between two moments.

    Threads that wait for each other's core were kept waiting by nobody else: others can't have
    taken more than they ran.
    """

    def __init__(self, busy: TrialProcess, frozen: Sequence[TrialProcess]) -> None:
        self._busy, self._frozen = busy, frozen
        self._frozen_ns = [process.usage().cpu_ns for process in frozen]
        self._usage = busy.usage()
        self._machine = processes.machine()

    def since(self) -> Used:
        usage, now = self._busy.usage(), processes.machine()
        frozen_ns = sum(
            max(0, process.usage().cpu_ns - before)
            for process, before in zip(self._frozen, self._frozen_ns, strict=True)
        )
        cpu_ns = max(0, usage.cpu_ns - self._usage.cpu_ns)
        others_ns = self._machine.others_ns(now, cpu_ns)
        waited_ns = min(max(0, usage.waited_ns - self._usage.waited_ns), others_ns)
        return Used(cpu_ns, frozen_ns, waited_ns, self._machine.stolen_ns(now))


def block_sample(
    place: Place,
    served: Served,
    used: Used,
    quiet: Quiet,
    warm_up: tuple[RequestSample, ...] = (),
) -> BlockSample:
    """What was served and used, as evidence; void where somebody else ran."""
    return BlockSample(
        place.pair,
        place.start,
        place.side,
        place.position,
        served.wall_ns,
        served.requests,
        used.busy_cpu_ns,
        used.frozen_cpu_ns,
        used.waited_ns,
        used.steal_ns,
        void_reason(used, served.wall_ns, quiet),
        used.turn_ns,
        used.turn_tokens,
        warm_up,
    )


def void_reason(used: Used, wall_ns: int, quiet: Quiet) -> str | None:
    """Why a block doesn't count; None: it does."""
    if used.frozen_cpu_ns > FROZEN_CPU_ALLOWED_NS:
        return f"the frozen side used {used.frozen_cpu_ns / 1e6:.1f} ms of processor time"
    wanted_ns = used.busy_cpu_ns + used.waited_ns
    if used.waited_ns > quiet.waited_share * wanted_ns:
        return f"the side was kept waiting for {used.waited_ns / wanted_ns:.0%} of its time to run"
    if used.steal_ns > quiet.steal_share * wall_ns * processes.CORES:
        return f"the machine was taken away for {used.steal_ns / 1e6:.0f} ms"
    return None
