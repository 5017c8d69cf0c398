"""The fake engine's knobs."""

from typing import Any

Knob = bool | int | float | str


def _int(name: str, low: int, high: int, default: int, rung: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "int",
        "low": low,
        "high": high,
        "log": False,
        "default": default,
        "rung": rung,
        "output_class": "bitwise",
        "help": text,
    }


SPACE: tuple[dict[str, Any], ...] = (
    _int("rounds", 0, 1_000_000, 200, "live", "hash rounds that a step costs"),
    _int("max_batch", 1, 64, 8, "live", "requests served at once"),
    _int("context", 16, 65_536, 4_096, "init", "most tokens of a request, prompt and output"),
    _int(
        "copies", 1, 8, 1, "process", "does nothing; stands for what only a new process can change"
    ),
)
DEFAULTS: dict[str, Knob] = {knob["name"]: knob["default"] for knob in SPACE}
LIVE = frozenset(knob["name"] for knob in SPACE if knob["rung"] == "live")


def check(knobs: dict[str, Knob], *, live: bool) -> None:
    """Raise ValueError, in one line, for a knob that doesn't exist or can't be set now."""
    for knob in SPACE:
        value = knobs.get(knob["name"], knob["default"])
        if not isinstance(value, int) or not knob["low"] <= value <= knob["high"]:
            raise ValueError(
                f"{knob['name']} must lie in {knob['low']}..{knob['high']}, not {value}"
            )
    for name in knobs:
        if name not in DEFAULTS:
            raise ValueError(f"there is no knob {name!r}: use one of {', '.join(DEFAULTS)}")
        if live and name not in LIVE:
            raise ValueError(f"{name} can't be changed in a running engine")
