"""The engine host's own settings, PERPETUNE_ENGINE_HOST_<FIELD>."""

from __future__ import annotations

from services.settings import RoomSettings


class EngineHostSettings(RoomSettings, frozen=True, kw_only=True):
    """`device_class`: what it offers. `waited_share`, `steal_share`: how much of a block others may
    take before it doesn't count. `reprove_idle_s`: engines are proved again after so long without
    work. For development only: `unsafe_no_sandbox` runs engine processes without confinement,
    `child_output` shows what they print.
    """

    device_class: str = "cpu"
    waited_share: float = 0.10
    steal_share: float = 0.10
    reprove_idle_s: float = 15.0
    unsafe_no_sandbox: bool = False
    child_output: bool = False

    def __post_init__(self) -> None:
        if min(self.waited_share, self.steal_share) < 0:
            raise ValueError("waited_share and steal_share can't be below 0")
        if self.reprove_idle_s <= 0:
            raise ValueError("reprove_idle_s must be more than 0")
