"""The scheduler's own settings, PERPETUNE_SCHEDULER_<FIELD>."""

from __future__ import annotations

from services.settings import RoomSettings


class SchedulerSettings(RoomSettings, frozen=True, kw_only=True):
    """`idle_finish_s`: a campaign with nothing left to try ends after that long.

    `tick_s`: how often budgets and leases are looked at while nothing happens.
    `snapshot_events`: a snapshot is written every so many events.
    """

    idle_finish_s: float = 20.0
    tick_s: float = 0.25
    snapshot_events: int = 500

    def __post_init__(self) -> None:
        if self.idle_finish_s <= 0 or self.tick_s <= 0:
            raise ValueError("idle_finish_s and tick_s must be more than 0")
        if self.snapshot_events < 1:
            raise ValueError("snapshot_events must be at least 1")
