"""Child processes that live and die with their parent."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from services.log import get_log
from services.processes import die_with_parent

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
STEADY_S = 30.0  # a child that ran this long starts again with the first pause
STOP_LIMIT_S = 8.0


@dataclass(frozen=True)
class Child:
    """What to run. `env` is added to this process's environment; `restarts` False runs it once.

    `max_restarts` bounds the restarts in a row (a steady run resets the count).
    """

    name: str
    argv: Sequence[str]
    nice: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    restarts: bool = True
    max_restarts: int = 20
    log_file: Path | None = None


@dataclass(frozen=True)
class Exit:
    """A child's end: `code` is the exit status, or minus the signal's number."""

    name: str
    code: int
    restarted: bool


class Supervisor:
    """Starts children in process groups of their own, restarts what ends, and ends them all.

    Nothing outlives it: `stop` kills whole groups, and a child is killed by the kernel when this
    process ends in any way.
    """

    def __init__(self) -> None:
        self.exits: list[Exit] = []
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self._changed = asyncio.Event()

    async def start(self, child: Child) -> int:
        """Start a child and return its process id. Raises OSError when it can't be started."""
        process = await self._launch(child)
        self._keepers[child.name] = asyncio.create_task(self._keep(child, process))
        return process.pid

    def pid(self, name: str) -> int | None:
        """The process id of a child's current life; None between lives and after the last."""
        process = self._running.get(name)
        return process.pid if process is not None else None

    async def exit_of(self, name: str) -> Exit:
        """Wait for the next time that a child ends (an end that was already seen counts)."""
        while True:
            for exit in self.exits:
                if exit.name == name:
                    return exit
            await self._changed.wait()

    async def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """SIGTERM to every child, then SIGKILL to what is left of their groups."""
        self._stopping = True
        running = list(self._running.values())
        for process in running:
            _signal(process.pid, signal.SIGTERM)
        if running:
            await asyncio.wait(
                [asyncio.ensure_future(process.wait()) for process in running], timeout=limit_s
            )
        for process in running:
            _kill_group(process.pid)
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)
        self._keepers.clear()

    async def _launch(self, child: Child) -> asyncio.subprocess.Process:
        output = None
        if child.log_file is not None:
            child.log_file.parent.mkdir(parents=True, exist_ok=True)
            output = os.open(child.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            process = await asyncio.create_subprocess_exec(
                *child.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **child.env},
                start_new_session=True,
                preexec_fn=die_with_parent(child.nice),
            )
        finally:
            if output is not None:
                os.close(output)
        self._running[child.name] = process
        return process

    async def _keep(self, child: Child, process: asyncio.subprocess.Process) -> None:
        log = get_log("supervisor")
        in_a_row = 0
        while True:
            began_s = time.monotonic()
            code = await process.wait()
            _kill_group(process.pid)  # what it left behind goes with it
            self._running.pop(child.name, None)
            in_a_row = 0 if time.monotonic() - began_s > STEADY_S else in_a_row + 1
            again = child.restarts and not self._stopping and in_a_row <= child.max_restarts
            self._note(Exit(child.name, code, again))
            log.info("child ended", child=child.name, code=code, restarted=again)
            if not again:
                return
            await asyncio.sleep(min(FIRST_PAUSE_S * 2 ** (in_a_row - 1), LONGEST_PAUSE_S))
            process = await self._launch(child)

    def _note(self, exit: Exit) -> None:
        self.exits.append(exit)
        self._changed.set()
        self._changed = asyncio.Event()


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
