"""The whole system on this machine: the broker and every room as a child process.

Control rooms get a lower priority than the engines: what is timed must not share a core with them.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from protos.events import Event
from services.broker import Broker
from services.errors import BrokerError, PerpetuneError
from services.local.run_folder import RunFolder, free_bytes
from services.ports import Ports, open_ports
from services.settings import Settings
from services.supervisor import Child, Supervisor

CONTROL_NICE = 19
# Numeric libraries of the control rooms keep to one thread: the cores belong to the engines.
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
TOO_MANY_EXITS = 3
STOP_FREE_BYTES = 20_000_000  # with less, a running campaign is ended while it can still be written


class SystemFailed(PerpetuneError):
    """A room can't be kept running; one line that says which and where its log is."""


@dataclass(frozen=True)
class Room:
    """A room to start: the module that `python -m` runs, and at which priority."""

    name: str
    nice: int = CONTROL_NICE
    env: Mapping[str, str] = field(default_factory=lambda: dict(ONE_THREAD))


ROOMS = (
    Room("scheduler"),
    Room("evaluator"),
    Room("proposer"),
    Room("engine_host", nice=0, env={}),
)


def default_home() -> Path:
    """The cache that runs share (prepared models): PERPETUNE_HOME, else under ~/.cache."""
    given = os.environ.get("PERPETUNE_HOME")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "perpetune"


@dataclass
class System:
    """A running system: its ports, and the processes behind them."""

    folder: RunFolder
    ports: Ports
    supervisor: Supervisor
    broker: Broker

    def check_disk(self) -> None:
        """Raise SystemFailed when the run can't be written much longer."""
        path, free = self.folder.path, free_bytes(self.folder.path)
        if free < STOP_FREE_BYTES:
            left = f"{free // 1_000_000} MB are left"
            raise SystemFailed(f"the disk of {path} is full, {left}: free some")

    def check(self) -> None:
        """Raise SystemFailed when the disk is full or a room ends again and again."""
        self.check_disk()
        for name in {exit.name for exit in self.supervisor.exits}:
            ended = [exit for exit in self.supervisor.exits if exit.name == name]
            if len(ended) >= TOO_MANY_EXITS:
                log = self.folder.logs / f"{name}.log"
                raise SystemFailed(
                    f"the {name} can't be kept running (exit code {ended[-1].code}): "
                    f"{last_line(log)} (all of it in {log})"
                )


@contextlib.asynccontextmanager
async def open_system(
    folder: RunFolder, port: int | None = None, rooms: tuple[Room, ...] = ROOMS
) -> AsyncIterator[System]:
    """Broker and rooms on a run folder, until the block ends.

    Raises RunFolderError (held by another), BrokerError (port in use, no nats-server, disk).
    """
    with folder.held():
        async with running_broker(folder, port) as broker, open_store(folder, broker.url) as ports:
            supervisor = Supervisor()
            keeper = asyncio.create_task(broker.keep_running(), name="broker keeper")
            try:
                for room in rooms:
                    await supervisor.start(_child(room, folder, broker.url))
                yield System(folder, ports, supervisor, broker)
            finally:
                await supervisor.stop()
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)


@contextlib.asynccontextmanager
async def open_ledger(folder: RunFolder) -> AsyncIterator[Ports]:
    """Ports on a run's store to read it: its running broker's, else an own one's for the while."""
    url = folder.live_url()
    if url is not None:
        async with open_store(folder, url) as ports:
            yield ports
        return
    if not folder.has_ledger():
        raise BrokerError(f"{folder.path} holds no ledger: its campaign never started")
    with folder.held():
        async with running_broker(folder, None) as broker, open_store(folder, broker.url) as ports:
            yield ports


@contextlib.asynccontextmanager
async def running_broker(folder: RunFolder, port: int | None) -> AsyncIterator[Broker]:
    """The embedded broker on a run's store, for the holder of the folder."""
    broker = Broker(folder.broker.resolve(), port)
    await broker.start()
    try:
        folder.announce(broker.url)
        yield broker
    finally:
        await broker.stop()


def open_store(folder: RunFolder, url: str) -> contextlib.AbstractAsyncContextManager[Ports]:
    """Ports of a broker's ledger and bus, and of the folder's blobs."""
    return open_ports(Settings(nats_url=url, run_dir=str(folder.path.resolve())), events=Event)


def last_line(file: Path) -> str:
    """The last line of a log, shortened; says so when there is none."""
    try:
        lines = file.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:300] if lines else "it wrote nothing"


def _child(room: Room, folder: RunFolder, url: str) -> Child:
    env = {
        **room.env,
        "PERPETUNE_NATS_URL": url,
        "PERPETUNE_RUN_DIR": str(folder.path.resolve()),
        "PERPETUNE_HOME": str(default_home()),
        "PERPETUNE_INSTANCE": "0",
    }
    return Child(
        name=room.name,
        argv=(sys.executable, "-m", room.name),
        nice=room.nice,
        env=env,
        log_file=folder.logs / f"{room.name}.log",
    )
