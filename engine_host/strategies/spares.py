"""Trials are taken from a pool of spares that never fork: the strategy of CUDA engines.

A spare is a process of its own with the weights mapped and, in a warm pool, the engine built and
warmed. A trial takes one, is patched in it, and it is thrown away. The logic is tested on the CPU
with the fake engine; it has not been verified on CUDA devices.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from engine_host.errors import EngineLostError, TrialFailedError
from engine_host.trial_process import TrialProcess
from engine_host.zygotes import ChildSpec, start_cold
from protos.trial import Limits

POOL_SIZE = 2
_SPARE_LIMITS = Limits()


class SpareResident:
    """Keeps `size` groups of spares; each group is one process a rank."""

    def __init__(self, spec: ChildSpec, kind: str, ranks: int, size: int) -> None:
        self.spec = spec
        self._kind = kind
        self._ranks = ranks
        self._size = size
        self.golden: list[list[int]] = []
        self._pool: deque[tuple[TrialProcess, ...]] = deque()
        self.refill()

    def wait(self) -> None:
        """Its constructor has waited for the first spares already."""

    def take(self, limits: Limits) -> tuple[TrialProcess, ...]:
        if not self._pool:
            self.refill()
        group = self._pool.popleft()
        for spare in group:
            spare.limits = limits
            spare.thaw()
        return group

    def refill(self) -> None:
        while len(self._pool) < self._size:
            self._pool.append(tuple(self._start(rank) for rank in range(self._ranks)))

    def alive(self) -> bool:
        return all(spare.alive() for group in self._pool for spare in group)

    def close(self) -> None:
        for group in self._pool:
            for spare in group:
                spare.end()
        self._pool.clear()

    def _start(self, rank: int) -> TrialProcess:
        try:
            spare = start_cold(self.spec, _SPARE_LIMITS, kind=f"spare_{self._kind}", rank=rank)
            self._warm(spare)
        except TrialFailedError as error:
            raise EngineLostError(f"a spare didn't start: {error.detail}") from error
        spare.freeze()
        return spare

    def _warm(self, spare: TrialProcess) -> None:
        arguments: dict[str, Any] = {"warm_up": self.spec.warm_up}
        self.golden = spare.ask("stand_by", "start", _SPARE_LIMITS.start_s, **arguments)


class SpareStrategy:
    name = "spares"

    def __init__(self, size: int = POOL_SIZE) -> None:
        self._size = size

    def start(self, spec: ChildSpec, kind: str, ranks: int = 1) -> SpareResident:
        return SpareResident(spec, kind, ranks, self._size)
