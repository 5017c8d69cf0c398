"""`python -m proposer`: the built-in strategies on the broker and run folder of the settings."""

from __future__ import annotations

import os
import sys

from proposer.actor import Proposer
from proposer.settings import ProposerSettings
from services.main import run_room
from services.ports import Ports
from services.settings import Settings, read_room_settings

NICE = 10


def build(ports: Ports, settings: Settings) -> Proposer:
    # Whoever started this room may have lowered its priority already.
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    return Proposer(ports, read_room_settings(ProposerSettings, "proposer"))


if __name__ == "__main__":
    sys.exit(run_room("proposer", build))
