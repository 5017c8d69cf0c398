"""One disposable engine process, as its host sees it: asked, watched, frozen, and ended.

All of it blocks; it runs in the host's one measuring thread. Every wait has a limit, and memory and
process count are watched from outside while waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from engine_host import processes
from engine_host.errors import NotHotError, TrialFailedError
from engine_host.wire import ChannelBrokenError, ChannelTimeoutError, HostChannel
from protos.trial import Limits

WATCH_EVERY_S = 0.05
Message = dict[str, Any]


class EngagedError(Exception):
    """A function that was made to raise was called."""


class TrialProcess:
    """`rung` is how its engine came up. Raises TrialFailedError whatever the process does."""

    def __init__(
        self,
        pid: int,
        channel: HostChannel,
        limits: Limits,
        how_it_ended: Callable[[], str] = lambda: "",
    ) -> None:
        self.pid = pid
        self.rung = ""
        self._channel = channel
        self.limits = limits
        self._how_it_ended = how_it_ended
        self._members: list[int] = []
        self._halted: list[int] = []  # stopped by `halt`, not seen to stand still yet
        self._stopped: processes.Stopped | None = None  # None: may run
        self._watched_ns = 0

    def ask(self, op: str, phase: str, limit_s: float, **arguments: Any) -> Any:
        """Send one operation and wait for its answer.

        Raises NotHotError, EngagedError, or TrialFailedError with the engine's own error line.
        """
        self.send({"op": op, **arguments}, phase, limit_s)
        return self.answer(op, phase, limit_s)

    def answer(self, op: str, phase: str, limit_s: float) -> Any:
        """Wait for the answer to an operation that was sent. Raises what `ask` raises."""
        deadline_ns = time.monotonic_ns() + int(limit_s * 1e9)
        while True:
            found = self.take(WATCH_EVERY_S, phase)
            if found is not None and found[1].get("re") == op:
                return self._value(found[1], phase)
            if found is not None and found[1].get("re") == "step":
                raise _reported(found[1], phase)
            if time.monotonic_ns() >= deadline_ns:
                raise TrialFailedError(phase, f"{op} took more than {limit_s:g} s")

    def send(self, message: Message, phase: str, limit_s: float) -> None:
        """Send without waiting for an answer."""
        try:
            self._channel.send(message, time.monotonic_ns() + int(limit_s * 1e9))
        except (ChannelBrokenError, ChannelTimeoutError) as error:
            raise self._failure(phase, str(error) or "doesn't read its requests") from error

    def take(self, wait_s: float, phase: str) -> tuple[int, Message] | None:
        """The next frame and its arrival in monotonic nanoseconds; None if none came in time."""
        try:
            found = self._channel.take(wait_s)
        except ChannelBrokenError as error:
            raise self._failure(phase, str(error)) from error
        self.watch(phase)
        return found

    def watch(self, phase: str) -> None:
        """Hold the process to its memory and its number of processes, a few times a second."""
        now_ns = time.monotonic_ns()
        if now_ns - self._watched_ns < WATCH_EVERY_S * 1e9:
            return
        self._watched_ns = now_ns
        self._members = processes.tree(self.pid, self.limits.processes + 1)
        if len(self._members) > self.limits.processes:
            raise TrialFailedError(phase, f"made more than {self.limits.processes} processes")
        used = processes.resident_bytes(self._members)
        if used > self.limits.memory_bytes:
            raise TrialFailedError(
                phase,
                f"took {used / 1e9:.1f} GB, over the {self.limits.memory_bytes / 1e9:g} GB limit",
            )

    def halt(self) -> None:
        """Stop the processes of the last census at once; `freeze` sees to the rest."""
        self._halted = self._members or [self.pid]
        processes.halt(self._halted)

    def freeze(self) -> None:
        self._stopped, self._halted = processes.freeze(self.pid, self._halted), []
        self._members = self._stopped.pids

    def stand_still(self, phase: str) -> None:
        """`freeze`, and see that it worked: a tree that outruns its census can't be compared.

        Raises TrialFailedError.
        """
        self.freeze()
        if self._stopped is None or not self._stopped.still:
            raise TrialFailedError(phase, "starts processes faster than they can be stopped")

    def thaw(self) -> None:
        stopped, self._halted, self._stopped = self._stopped, [], None
        if stopped is not None and stopped.still:
            processes.wake(stopped.pids)
        else:
            processes.thaw(self.pid)

    def usage(self) -> processes.Usage:
        """Processor time and run-queue wait of the whole tree so far."""
        return processes.usage(processes.tree(self.pid))

    def usage_when_still(self) -> processes.Usage:
        """The same, of the threads that were seen to stand still: between two slices."""
        if self._stopped is None or not self._stopped.still:
            return self.usage()
        return processes.usage_of(self._stopped.threads)

    def alive(self) -> bool:
        return processes.alive(self.pid)

    def end(self) -> bool:
        """Kill it with everything it started. False if something survived."""
        self._channel.close()
        return processes.kill(self.pid)

    def _value(self, reply: Message, phase: str) -> Any:
        if reply.get("ok") is True:
            return reply.get("value")
        raise _reported(reply, phase)

    def _failure(self, phase: str, detail: str) -> TrialFailedError:
        how = self._how_it_ended()
        return TrialFailedError(phase, f"{detail} ({how})" if how else detail)


def _reported(reply: Message, phase: str) -> Exception:
    text = reply.get("error")
    line = (text if isinstance(text, str) and text else "failed without a word").splitlines()[0][
        :600
    ]
    if reply.get("kind") == "not_hot":
        return NotHotError(line)
    if reply.get("kind") == "engaged":
        return EngagedError(line)
    return TrialFailedError(phase, line)
