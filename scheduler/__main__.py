"""`python -m scheduler`: one scheduler on the broker and run folder of the settings."""

from __future__ import annotations

import sys
from pathlib import Path

from scheduler.actor import Scheduler
from scheduler.lead import FileLead
from scheduler.settings import SchedulerSettings
from scheduler.snapshot import Snapshots
from services.main import run_room
from services.ports import Ports
from services.promotions import JOURNAL, PromotionJournal
from services.settings import Settings, read_room_settings


def build(ports: Ports, settings: Settings) -> Scheduler:
    own = read_room_settings(SchedulerSettings, "scheduler")
    home = Path(settings.run_dir) / "scheduler"
    journal = PromotionJournal(Path(settings.run_dir) / JOURNAL)
    snapshots = Snapshots(home / "snapshot.msgpack")
    return Scheduler(ports, FileLead(home / "lock"), snapshots, journal, own)


if __name__ == "__main__":
    sys.exit(run_room("scheduler", build))
