"""The proposer's own settings, PERPETUNE_PROPOSER_<FIELD>."""

from __future__ import annotations

from services.settings import RoomSettings


class ProposerSettings(RoomSettings, frozen=True, kw_only=True):
    """`window`: candidates of one strategy that may wait; `arm_window`: those of one arm."""

    window: int = 3
    arm_window: int = 6

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError("window must be at least 1")
        if self.arm_window < self.window:
            raise ValueError("arm_window must be at least window")
