"""Time as a port: real, or virtual in a loop that jumps over every wait."""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """What a room may know of time."""

    def now_s(self) -> float:
        """Seconds since the epoch; may jump."""

    def monotonic_s(self) -> float:
        """Seconds that only grow, from an unstated start."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""


class RealClock:
    """The machine's clock."""

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class VirtualClock:
    """The time of the running event loop, counted from `start_s`. Use inside `run_virtual`."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self._start_s = start_s

    def now_s(self) -> float:
        return self._start_s + self.monotonic_s()

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _JumpingSelector(selectors.DefaultSelector):
    """Serves I/O that is ready; where the loop would wait for a timer, time jumps to it instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:  # no timer is set: only another thread or I/O can go on
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self.now_s += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    """Every `asyncio.sleep` and time-out follows the jumping selector's time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end under virtual time: an hour of waiting costs no time at all.

    Only for work inside one process and thread: time would jump over a wait for another thread.
    """
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)
