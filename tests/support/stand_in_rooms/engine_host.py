"""A room that says what an engine host would say, and does nothing."""

import asyncio
import sys

from protos.messages import Activity
from services.actor import Actor
from services.main import run_room


class StandInHost(Actor):
    """Signals its activity until it is told to stop."""

    room = "engine_host"

    async def started(self) -> None:
        self.spawn(self._signal(), "signals")

    async def _signal(self) -> None:
        while True:
            now = Activity("host0", "trial", "t1", "c1", "threads=2", "fast", 3, 24)
            await self.bus.signal(self.room, "host0", now)
            await asyncio.sleep(0.05)


sys.exit(run_room("engine_host", lambda ports, settings: StandInHost(ports)))
