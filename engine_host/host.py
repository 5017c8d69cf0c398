"""The engine host as a library: prepare a target, run leases. No bus in here.

host = Host("host-0", home, blobs)
prepared = await host.prepare(target, campaign)
evidence = await host.run(lease, judge_port)
await host.close()
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from engine_host import processes
from engine_host.bandwidth import Bandwidth
from engine_host.block import Quiet
from engine_host.cold import ColdMeasurement
from engine_host.errors import EngineLostError, HostError
from engine_host.judge_port import JudgeBridge, JudgePort
from engine_host.measure import Measurement, Progress
from engine_host.reproof import damaged_weights, reprove
from engine_host.residency import Residency
from engine_host.strategies import strategy_for
from engine_host.targets import Prepared, prepare_target
from engine_host.zygotes import Exposure
from protos.candidate import Scalar
from protos.release import EngineFacts
from protos.target import Target
from protos.trial import Evidence, Lease
from services.blobs import Blobs

T = TypeVar("T")


class Host:
    """One device group, one trial at a time; all that blocks runs in its measuring thread."""

    def __init__(
        self,
        name: str,
        home: Path,
        blobs: Blobs,
        quiet: Quiet | None = None,
        exposure: Exposure | None = None,
        on_built: Callable[[str, str, float], None] = lambda *_: None,
        archives: bool = True,
    ) -> None:
        """`archives`: whether engines may start from what was compiled before."""
        self.name = name
        self._archives = archives
        self._home, self._blobs, self._on_built = home, blobs, on_built
        self._quiet = quiet or Quiet()
        self._exposure = exposure or Exposure()
        self._thread = ThreadPoolExecutor(1, "measuring", processes.wake_promptly)
        self._bandwidth = Bandwidth()
        self._stopping = threading.Event()
        self._residency: dict[str, Residency] = {}
        self._prepared: dict[str, Prepared] = {}

    async def prepare(
        self, target: Target, campaign: str, knobs: Mapping[str, Scalar] | None = None
    ) -> Prepared:
        """Model prepared, engines of the start release up and warm. Raises HostError."""
        return await self._in_thread(lambda: self._prepare(target, campaign, knobs))

    async def run(
        self, lease: Lease, judge: JudgePort, progress: Progress = lambda *_: None
    ) -> Evidence:
        """Measure one lease. Raises EngineLostError (no verdict may follow) or HostError."""
        bridge = JudgeBridge(asyncio.get_running_loop(), judge)
        return await self._in_thread(lambda: self._run(lease, bridge, progress))

    async def reprove(self) -> dict[str, str]:
        """What is wrong with each release's engine (empty: nothing).

        A damaged one is rebuilt; where that can't be, its campaign must be prepared again.
        """
        return await self._in_thread(self._reprove)

    async def close(self) -> None:
        """End every engine; a trial that runs ends after its block, as a lost one."""
        self._stopping.set()
        await self._in_thread(self._close)
        self._thread.shutdown()

    def residency(self, campaign: str) -> Residency:
        """The engines of a campaign. Raises HostError when it was not prepared here."""
        found = self._residency.get(campaign)
        if found is None:
            raise HostError(f"campaign {campaign} was not prepared on host {self.name}")
        return found

    def holds(self, campaign: str) -> bool:
        """Whether a campaign is prepared here."""
        return campaign in self._residency

    def facts(self, campaign: str) -> EngineFacts:
        """What was said of a campaign's target. Raises HostError when it was not prepared here."""
        self.residency(campaign)
        return self._prepared[campaign].facts

    def _prepare(
        self, target: Target, campaign: str, knobs: Mapping[str, Scalar] | None
    ) -> Prepared:
        known = self._prepared.get(campaign)
        if known is not None:
            return known
        self._close()  # one target at a time: its engines fill the machine
        prepared = prepare_target(target, campaign, self._home, self._blobs, knobs)
        residency = Residency(
            target.engine,
            prepared.model,
            prepared.start_side,
            self._blobs,
            self._home,
            strategy_for(target.device_class),
            self._exposure,
            self._on_built,
            self._archives,
        )
        try:
            residency.bring_up()
            prepared = prepared.with_space(residency)
        except BaseException:
            residency.close()
            raise
        self._residency[campaign] = residency
        self._prepared[campaign] = prepared
        return prepared

    def _run(self, lease: Lease, judge: JudgeBridge, progress: Progress) -> Evidence:
        residency = self.residency(lease.campaign)
        kind = ColdMeasurement if lease.plan.starts > 0 else Measurement
        try:
            evidence = kind(
                residency,
                lease,
                judge,
                self.name,
                self._quiet,
                self._watch(progress),
                self._bandwidth if lease.target.device_class == "cpu" else None,
            ).run()
        except EngineLostError:
            residency.forget_kept()
            raise
        residency.refill()
        return evidence

    def _watch(self, progress: Progress) -> Progress:
        """Progress that also ends a trial once the host is to stop."""

        def watched(doing: str, pair: int) -> None:
            if self._stopping.is_set():
                raise EngineLostError("the host was stopped")
            progress(doing, pair)

        return watched

    def _reprove(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for campaign, residency in list(self._residency.items()):
            wrong = reprove(residency)
            found |= wrong
            try:
                for release in [release for release, reason in wrong.items() if reason]:
                    residency.rebuild(release, "doubt")
                if damaged_weights(residency.model.folder):
                    raise EngineLostError("its model is damaged")
            except EngineLostError:
                # Beyond repair from here: it has to be prepared again.
                residency.close()
                del self._residency[campaign], self._prepared[campaign]
        return found

    def _close(self) -> None:
        for residency in self._residency.values():
            residency.close()
        self._residency.clear()
        self._prepared.clear()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # With this task's context, so that spans and asks of the thread belong to its trace.
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, context.run, work)
