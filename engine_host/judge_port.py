"""What a measurement needs from whoever judges it: a commitment first, the script when ready."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from protos.trial import Lease, Script

T = TypeVar("T")
ANSWER_LIMIT_S = 60.0


@dataclass(frozen=True)
class Revealed:
    """The script and the blob digest that it is stored under."""

    script: Script
    digest: str


class JudgePort(Protocol):
    """Implemented by the actor over the bus, and by benchmarks and tests in process."""

    async def commit(self, trial: str, epoch: int) -> str:
        """The commitment to the trial's seed; asked before the patch is loaded."""

    async def reveal(self, lease: Lease) -> Revealed:
        """The script; asked once the trial is ready."""


class JudgeBridge:
    """A judge port for the measuring thread: blocks it while the loop asks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: JudgePort) -> None:
        self._loop, self._port = loop, port

    def commit(self, trial: str, epoch: int) -> str:
        return self._wait(self._port.commit(trial, epoch))

    def reveal(self, lease: Lease) -> Revealed:
        return self._wait(self._port.reveal(lease))

    def _wait(self, answer: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result(ANSWER_LIMIT_S)
