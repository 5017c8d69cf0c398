"""Settings, read once at the edge from the environment, checked, and handed on as plain values."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from services.errors import SettingsError

PREFIX = "PERPETUNE_"
ROOMS = ("proposer", "evaluator", "engine_host", "scheduler")
LOG_LEVELS = ("debug", "info", "warning", "error")


class RoomSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of one room's own settings, read from PERPETUNE_<ROOM>_<FIELD>."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every room needs, read from PERPETUNE_<FIELD>.

    `run_dir` is where this run's traces, broker and blobs live; `instance` tells several processes
    of a room apart; `home` is the cache shared by runs (models, builds).
    """

    nats_url: str = "nats://127.0.0.1:4222"
    run_dir: str = "runs/current"
    home: str | None = None
    blobs_dir: str | None = None
    instance: str = "0"
    log_level: str = "info"
    log_file: str | None = None
    connect_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.log_level not in LOG_LEVELS:
            raise ValueError(f"log_level must be one of {', '.join(LOG_LEVELS)}")
        if not self.connect_timeout_s > 0:
            raise ValueError("connect_timeout_s must be over 0")

    @property
    def blobs_path(self) -> Path:
        """The folder of the content-addressed blobs, shared by the run's processes."""
        return Path(self.blobs_dir) if self.blobs_dir else Path(self.run_dir) / "blobs"

    @property
    def traces_path(self) -> Path:
        return Path(self.run_dir) / "traces"


T = TypeVar("T", bound=msgspec.Struct)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The common settings. Raises SettingsError, naming the variable and its value."""
    given = _with_prefix(os.environ if environ is None else environ, PREFIX)
    own = {name: value for name, value in given.items() if not _belongs_to_a_room(name)}
    return _convert(own, Settings, PREFIX)


def read_room_settings(
    settings_type: type[T], room: str, environ: Mapping[str, str] | None = None
) -> T:
    """One room's own settings from PERPETUNE_<ROOM>_<FIELD>. Raises SettingsError."""
    prefix = f"{PREFIX}{room.upper()}_"
    given = _with_prefix(os.environ if environ is None else environ, prefix)
    return _convert(given, settings_type, prefix)


def _with_prefix(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {k[len(prefix) :].lower(): v for k, v in environ.items() if k.startswith(prefix)}


def _belongs_to_a_room(name: str) -> bool:
    return any(name.startswith(f"{room}_") for room in ROOMS)


def _convert(given: dict[str, str], settings_type: type[T], prefix: str) -> T:
    known = settings_type.__struct_fields__
    for name in given:
        if name not in known:
            raise SettingsError(
                f"{prefix}{name.upper()}={given[name]!r} is no setting; "
                f"there are {', '.join(prefix + field.upper() for field in known)}"
            )
    for name in given:  # one at a time, so that the message can name the one that is wrong
        try:
            msgspec.convert({name: given[name]}, settings_type, strict=False)
        except msgspec.ValidationError as error:
            if "missing required" in str(error):
                continue
            why = str(error).split(" - at ")[0]
            raise SettingsError(f"{prefix}{name.upper()}={given[name]!r}: {why}") from error
    try:
        return msgspec.convert(given, settings_type, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{prefix}*: {error}") from error
