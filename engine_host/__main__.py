"""`python -m engine_host`: one engine host on the broker and run folder of the settings."""

from __future__ import annotations

import sys
from pathlib import Path

from engine_host.actor import EngineHost
from engine_host.settings import EngineHostSettings
from services.main import run_room
from services.ports import Ports
from services.settings import Settings, read_room_settings


def build(ports: Ports, settings: Settings) -> EngineHost:
    own = read_room_settings(EngineHostSettings, "engine_host")
    home = Path(settings.home).expanduser() if settings.home else _default_home()
    return EngineHost(ports, f"host-{settings.instance}", home, own)


def _default_home() -> Path:
    return Path.home() / ".cache" / "perpetune"


if __name__ == "__main__":
    sys.exit(run_room("engine_host", build))
