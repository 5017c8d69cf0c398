"""What a room may touch of the world outside: everything else it is given as values."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from protos import Event
from services.blobs import Blobs, DirectoryBlobs, MemoryBlobs
from services.bus import Bus, MemoryBroker, MemoryBus, NatsBus
from services.clock import Clock, RealClock
from services.ledger import Ledger, MemoryLedger, NatsLedger
from services.nats_link import Link
from services.settings import Settings


@dataclass(frozen=True)
class Ports:
    """A room's ways out: the bus, the ledger, the blobs and the clock."""

    bus: Bus
    ledger: Ledger
    blobs: Blobs
    clock: Clock


class MemoryWorld:
    """The shared parts behind the ports of several rooms that run in one process."""

    def __init__(self, clock: Clock | None = None, events: Any = Event) -> None:
        self.clock: Clock = clock or RealClock()
        self.broker = MemoryBroker(self.clock)
        self.ledger = MemoryLedger(events, self.clock)
        self.blobs = MemoryBlobs()

    def ports(self) -> Ports:
        """One more room's ports."""
        return Ports(MemoryBus(self.broker), self.ledger, self.blobs, self.clock)


@asynccontextmanager
async def open_ports(
    settings: Settings, name: str = "perpetune", events: Any = Event
) -> AsyncIterator[Ports]:
    """Ports over the broker of the settings and the run's blob folder.

    Raises BusUnavailable when no broker answers.
    """
    link = await Link.open(settings.nats_url, name, settings.connect_timeout_s)
    ports = Ports(
        bus=NatsBus(link),
        ledger=NatsLedger(link, events),
        blobs=DirectoryBlobs(settings.blobs_path),
        clock=RealClock(),
    )
    try:
        yield ports
    finally:
        await ports.bus.close()
        await ports.ledger.close()
        await link.close()
