"""Trials are forks of a zygote: the strategy of CPU engines."""

from __future__ import annotations

from engine_host.errors import HostError
from engine_host.trial_process import TrialProcess
from engine_host.zygotes import ChildSpec, Zygote
from protos.trial import Limits


class ForkResident:
    """One zygote."""

    def __init__(self, spec: ChildSpec, kind: str) -> None:
        self.spec = spec
        self._zygote = Zygote(spec, kind)
        self.golden: list[list[int]] = []

    @property
    def pid(self) -> int:
        return self._zygote.pid

    def wait(self) -> None:
        self._zygote.wait()
        self.golden = self._zygote.golden

    def take(self, limits: Limits) -> tuple[TrialProcess, ...]:
        return (self._zygote.fork(limits),)

    def refill(self) -> None:
        """A fork needs nothing kept ready."""

    def alive(self) -> bool:
        return self._zygote.alive()

    def close(self) -> None:
        self._zygote.close()


class ForkStrategy:
    name = "fork"

    def start(self, spec: ChildSpec, kind: str, ranks: int = 1) -> ForkResident:
        if ranks != 1:
            raise HostError("a forked engine has one rank; groups need the strategy of spares")
        return ForkResident(spec, kind)
