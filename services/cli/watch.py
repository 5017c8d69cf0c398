"""Watching a campaign run: ledger, engine signals and the scheduler's status, into a view."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator

from protos.events import CampaignFinished, CampaignPaused, CampaignRefused
from protos.messages import Activity, AskStatus, CampaignStatus
from services.cli.live import View
from services.cli.progress import Progress
from services.errors import PerpetuneError
from services.ports import Ports

TICK_S = 1.0
PAUSE_LIMIT_S = 20.0
_ENDS = (CampaignPaused, CampaignFinished, CampaignRefused)


class Interrupts:
    """Ctrl-C, counted: the first asks for a pause, the second ends at once."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def note(self) -> None:
        (self.second if self.first.is_set() else self.first).set()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT, SIGTERM and SIGHUP while the block runs."""
        loop = asyncio.get_running_loop()
        taken = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in taken:
            loop.add_signal_handler(number, self.note)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)


async def watch(
    ports: Ports,
    progress: Progress,
    view: View,
    interrupts: Interrupts,
    ask_pause: Callable[[], Awaitable[None]],
    check: Callable[[], None],
) -> None:
    """Return when the campaign has ended, is paused, or a second Ctrl-C gave up waiting.

    `ask_pause` is called once, at the first Ctrl-C. `check` raises when the system is beyond help.
    Events up to `progress.record.last_seq` are already folded in.
    """
    ended = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_follow(ports, progress, view, ended)),
            group.create_task(_signals(ports, progress)),
            group.create_task(_tick(ports, progress, view, check)),
        ]
        waits = [group.create_task(event.wait()) for event in (ended, interrupts.first)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not ended.is_set():
            view.say("pausing; Ctrl-C again ends at once (the campaign stays resumable)")
            await ask_pause()
            waits.append(group.create_task(interrupts.second.wait()))
            await asyncio.wait(
                [waits[0], waits[2]], timeout=PAUSE_LIMIT_S, return_when=asyncio.FIRST_COMPLETED
            )
        for task in (*tasks, *waits):
            task.cancel()


async def _follow(ports: Ports, progress: Progress, view: View, ended: asyncio.Event) -> None:
    async for recorded in ports.ledger.follow(progress.record.last_seq + 1):
        progress.apply(recorded)
        view.event(recorded, progress)
        event = recorded.event
        if isinstance(event, _ENDS) and event.campaign == progress.record.campaign:
            ended.set()
            return


async def _signals(ports: Ports, progress: Progress) -> None:
    stream = await ports.bus.signals(Activity, room="engine_host")
    try:
        async for heard in stream:
            progress.engines[heard.body.host] = heard.body
    finally:
        await stream.aclose()


async def _tick(ports: Ports, progress: Progress, view: View, check: Callable[[], None]) -> None:
    while True:
        check()
        request = AskStatus(progress.record.campaign)
        # A scheduler that is still starting, or starting again, doesn't answer: draw without it.
        with contextlib.suppress(PerpetuneError):
            progress.status = await ports.bus.ask(
                "scheduler", request, CampaignStatus, timeout_s=1.0
            )
        view.tick(progress)
        await asyncio.sleep(TICK_S)
