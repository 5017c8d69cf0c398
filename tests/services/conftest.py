"""Worlds: the same tests run on the memory parts and on a real nats-server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from services.broker import Broker
from services.bus import Bus, MemoryBroker, MemoryBus, NatsBus
from services.ledger import Ledger, MemoryLedger, NatsLedger
from services.nats_link import Link


class MemoryWorld:
    """The memory parts, with their planned faults as the crash."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self._ledger: MemoryLedger | None = None
        self._open: list[Bus | Ledger] = []

    async def bus(self) -> Bus:
        bus = MemoryBus(self.broker)
        self._open.append(bus)
        return bus

    async def ledger(self, accepts: Any) -> Ledger:
        if self._ledger is None:
            self._ledger = MemoryLedger(accepts)
            self._open.append(self._ledger)
        return self._ledger

    async def crash(self) -> None:
        await asyncio.sleep(0)
        self.broker.crash()

    async def raw_command(self, subject: str, raw: bytes) -> None:
        self.broker.store(subject, raw, {})

    async def close(self) -> None:
        for part in self._open:
            await part.close()


class NatsWorld:
    """A real broker in a folder of its own; a crash is a kill -9 and a start on the same port."""

    def __init__(self, folder: Path) -> None:
        self.server = Broker(folder)
        self._parts: list[Bus | Ledger] = []
        self._links: list[Link] = []

    async def link(self) -> Link:
        link = await Link.open(self.server.url, "test")
        self._links.append(link)
        return link

    async def bus(self) -> Bus:
        bus = NatsBus(await self.link())
        self._parts.append(bus)
        return bus

    async def ledger(self, accepts: Any) -> Ledger:
        ledger = NatsLedger(await self.link(), accepts)
        self._parts.append(ledger)
        return ledger

    async def crash(self) -> None:
        await self.server.kill()
        await self.server.start()

    async def raw_command(self, subject: str, raw: bytes) -> None:
        await (await self.link()).publish(subject, raw, {})

    async def close(self) -> None:
        for part in self._parts:
            await part.close()
        for link in self._links:
            await link.close()
        await self.server.stop()


World = MemoryWorld | NatsWorld


@pytest.fixture(params=["memory", "nats"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    made: World
    if request.param == "memory":
        made = MemoryWorld()
    else:
        made = NatsWorld(tmp_path / "nats")
        await made.server.start()
    yield made
    await made.close()


@pytest.fixture
async def nats_world(tmp_path: Path) -> AsyncIterator[NatsWorld]:
    made = NatsWorld(tmp_path / "nats")
    await made.server.start()
    yield made
    await made.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Awaitable[None]]:
    """Wait until something is observed; the limit only ends a test that has failed already."""

    async def wait(holds: Callable[[], Any], limit_s: float = 20.0) -> None:
        async with asyncio.timeout(limit_s):
            while not holds():  # noqa: ASYNC110 - what is observed may be another process's doing
                await asyncio.sleep(0.01)

    return wait
