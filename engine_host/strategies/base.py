"""The protocol of a strategy: what keeps engines of one release ready, and hands out trials."""

from __future__ import annotations

from typing import Protocol

from engine_host.trial_process import TrialProcess
from engine_host.zygotes import ChildSpec
from protos.trial import Limits


class Resident(Protocol):
    """Engines of one release (or bare ones), ready to be taken. Rebuilt, never repaired."""

    spec: ChildSpec
    golden: list[list[int]]  # the tokens of the warm-up requests when it was built

    def wait(self) -> None:
        """Until it is ready to be taken from; called once. Raises EngineLostError or
        UnprotectedError, and is closed then."""

    def take(self, limits: Limits) -> tuple[TrialProcess, ...]:
        """A fresh trial: one confined process a rank. Raises EngineLostError."""

    def refill(self) -> None:
        """Untimed work that makes the next `take` quick. Called between timed blocks only."""

    def alive(self) -> bool:
        """Whether `take` can still work."""

    def close(self) -> None:
        """End it and every trial taken from it."""


class Strategy(Protocol):
    """Starts residents. `ranks`: processes of one engine group."""

    name: str

    def start(self, spec: ChildSpec, kind: str, ranks: int = 1) -> Resident:
        """Begin a resident of kind `warm` (engine built) or `bare` (imports and weights only).

        Several may begin at once; each is waited for before it is used.
        """
