"""What `python -m <room>` does: settings, log, traces, ports, then the actor until it must end."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from services import telemetry
from services.actor import Actor
from services.errors import PerpetuneError, SettingsError
from services.log import get_log, setup_log
from services.ports import Ports, open_ports
from services.settings import Settings, read_settings

OK, FAILED, BAD_SETTINGS = 0, 1, 2


def run_room(room: str, build: Callable[[Ports, Settings], Actor]) -> int:
    """Run one room and return the exit code of its process.

    `build` makes the actor inside the running loop; a SettingsError it raises stops start-up too.
    SIGTERM and SIGINT end the room in order; a second one ends it at once.
    """
    try:
        settings = read_settings()
        setup_log(
            room,
            settings.instance,
            settings.log_level,
            Path(settings.log_file) if settings.log_file else None,
        )
        telemetry.setup(room, settings.traces_path)
    except (SettingsError, OSError) as error:
        return _stopped(error, BAD_SETTINGS)
    try:
        asyncio.run(_live(room, build, settings))
    except SettingsError as error:
        return _stopped(error, BAD_SETTINGS)
    except PerpetuneError as error:
        return _stopped(error, FAILED)
    except Exception:  # the process ends here anyway; its log must say why
        get_log(room).exception("the room failed")
        return FAILED
    finally:
        telemetry.shutdown()
    return OK


async def _live(room: str, build: Callable[[Ports, Settings], Actor], settings: Settings) -> None:
    async with open_ports(settings, name=f"{room}-{settings.instance}") as ports:
        actor = build(ports, settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _ask_to_stop, actor, loop)
        await actor.run()


def _ask_to_stop(actor: Actor, loop: asyncio.AbstractEventLoop) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    actor.stop()


def _stopped(error: Exception, code: int) -> int:
    sys.stderr.write(f"{error}\n")
    return code
