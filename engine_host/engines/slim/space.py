"""The declared search space: every knob with its range, default, rung and output class."""

import os
from typing import Any

_CPUS = len(os.sched_getaffinity(0))

Knob = bool | int | float | str


def _integer(
    name: str,
    low: int,
    high: int,
    default: int,
    rung: str,
    help: str,
    log: bool = False,
    output_class: str = "equivalent",
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "int",
        "low": low,
        "high": high,
        "choices": [],
        "log": log,
        "default": default,
        "rung": rung,
        "output_class": output_class,
        "help": help,
    }


def _boolean(name: str, default: bool, rung: str, help: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "bool",
        "low": None,
        "high": None,
        "choices": [False, True],
        "log": False,
        "default": default,
        "rung": rung,
        "output_class": "equivalent",
        "help": help,
    }


SPACE: tuple[dict[str, Any], ...] = (
    _integer("threads", 1, _CPUS, _CPUS, "live", "threads of one matrix product"),
    _integer(
        "onednn_min_rows",
        1,
        64,
        2,
        "live",
        "passes of fewer tokens use torch's own matrix products instead of oneDNN's",
        log=True,
    ),
    _integer("max_num_seqs", 1, 256, 32, "live", "sequences that run at the same time", log=True),
    _integer(
        "prefill_chunk", 16, 4096, 512, "live", "prompt tokens computed in one step", log=True
    ),
    _boolean(
        "decode_while_prefilling",
        True,
        "live",
        "running sequences advance in steps that compute prompts; else prompts go first",
    ),
    _boolean("prefix_caching", True, "live", "keep the blocks of finished sequences for reuse"),
    _integer("block_size", 8, 128, 16, "init", "tokens in one block of the cache", log=True),
    _integer("cache_tokens", 1024, 262144, 32768, "init", "tokens the cache can hold", log=True),
)
_BY_NAME = {knob["name"]: knob for knob in SPACE}


def with_defaults(knobs: dict[str, Knob]) -> dict[str, Any]:
    """All knobs, absent ones at their default. Raises `ValueError` as `check` does."""
    check(knobs)
    return {name: knobs.get(name, knob["default"]) for name, knob in _BY_NAME.items()}


def check(knobs: dict[str, Knob]) -> None:
    """Raise `ValueError`, in one line, for a knob that doesn't exist or a value out of range."""
    for name, value in knobs.items():
        if name not in _BY_NAME:
            raise ValueError(f"unknown knob '{name}' (there are: {', '.join(_BY_NAME)})")
        knob = _BY_NAME[name]
        if knob["kind"] == "bool":
            if not isinstance(value, bool):
                raise ValueError(f"knob '{name}' is true or false, not {value!r}")
        elif isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"knob '{name}' is a whole number, not {value!r}")
        elif not knob["low"] <= value <= knob["high"]:
            raise ValueError(f"knob '{name}' is {knob['low']} to {knob['high']}, not {value}")


def check_live(knobs: dict[str, Knob]) -> None:
    """`check`, and refuse what needs a new engine."""
    check(knobs)
    fixed = [name for name in knobs if _BY_NAME[name]["rung"] != "live"]
    if fixed:
        raise ValueError(f"knob '{fixed[0]}' needs a new engine, it can't change while running")
