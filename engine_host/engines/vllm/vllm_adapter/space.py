"""The declared search space: vLLM's settings that matter on a CPU.

Ranges end where vLLM's own checks do, as far as those are known; settings that clash are refused by
vLLM when the engine is built, in its own words.
"""

import os
from typing import Any

_CPUS = len(os.sched_getaffinity(0))
TCMALLOC_PATHS = (
    "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib64/libtcmalloc_minimal.so.4",
)

Knob = bool | int | float | str


def _knob(kind: str, name: str, default: Knob, rung: str, help: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "low": None,
        "high": None,
        "choices": [],
        "log": False,
        "default": default,
        "rung": rung,
        "output_class": "equivalent",
        "help": help,
        **more,
    }


def _integer(
    name: str, low: int, high: int, default: int, rung: str, help: str, **more: Any
) -> dict[str, Any]:
    return _knob("int", name, default, rung, help, low=low, high=high, **more)


def _choice(name: str, choices: list[Knob], rung: str, help: str, **more: Any) -> dict[str, Any]:
    """The first choice is the default."""
    return _knob("choice", name, choices[0], rung, help, choices=choices, **more)


def _boolean(name: str, default: bool, rung: str, help: str) -> dict[str, Any]:
    return _knob("bool", name, default, rung, help, choices=[False, True])


MAX_SEQS, MAX_BATCHED_TOKENS = 256, 4096  # what buffers are made for: live knobs move below

SPACE: tuple[dict[str, Any], ...] = (
    # Not live: products are prepared, and graphs compiled, for the number of threads there is then.
    _integer(
        "threads", 1, _CPUS, max(1, _CPUS - 1), "init", "compute threads; vLLM keeps one core free"
    ),
    _integer("max_num_seqs", 1, MAX_SEQS, 128, "live", "sequences that run at a time", log=True),
    _integer(
        "max_num_batched_tokens",
        64,
        MAX_BATCHED_TOKENS,
        2048,
        "live",
        "tokens computed in one step",
        log=True,
    ),
    _integer(
        "long_prefill_token_threshold",
        0,
        MAX_BATCHED_TOKENS,
        0,
        "live",
        "prompt tokens of one request in one step; 0: no bound of its own",
    ),
    _boolean("prefix_caching", True, "init", "keep the blocks of finished sequences for reuse"),
    _boolean("chunked_prefill", True, "init", "a prompt may be computed in several steps"),
    _choice("block_size", [128, 32, 64, 96], "init", "tokens in one block of the cache"),
    _integer("kv_cache_mib", 64, 4096, 1024, "init", "memory of the cache", log=True),
    _choice(
        "kv_cache_dtype",
        ["auto", "fp8_e4m3", "fp8_e5m2"],
        "init",
        "how the cache holds numbers; auto: as the model does",
        output_class="quality",
    ),
    _choice("mode", ["compiled", "eager"], "init", "run the model compiled, or as written"),
    _integer("ngram_tokens", 0, 8, 0, "init", "tokens drafted by n-gram lookup; 0: none"),
    _integer("ngram_lookup_max", 2, 8, 4, "init", "longest n-gram that is looked up"),
    _choice(
        "quantization",
        ["none", "fp8"],
        "init",
        "weights quantised while they are loaded",
        output_class="quality",
    ),
    _choice(
        "allocator",
        ["system", *(["tcmalloc"] if any(map(os.path.exists, TCMALLOC_PATHS)) else [])],
        "process",
        "the allocator that is preloaded",
        output_class="bitwise",
    ),
    _boolean("bind", True, "process", "compute threads keep to one core each"),
)
_BY_NAME = {knob["name"]: knob for knob in SPACE}


def with_defaults(knobs: dict[str, Knob]) -> dict[str, Any]:
    """All knobs, absent ones at their default. Raises `ValueError` as `check` does."""
    check(knobs)
    return {name: knobs.get(name, knob["default"]) for name, knob in _BY_NAME.items()}


def check(knobs: dict[str, Knob]) -> None:
    """Raise `ValueError`, in one line, for a knob that doesn't exist or a value out of range."""
    for name, value in knobs.items():
        if name.endswith("_parallel_size"):
            raise ValueError(f"knob '{name}': an engine of several devices isn't supported yet")
        if name not in _BY_NAME:
            raise ValueError(f"unknown knob '{name}' (there are: {', '.join(_BY_NAME)})")
        knob = _BY_NAME[name]
        if knob["choices"]:
            if not any(value == c and type(value) is type(c) for c in knob["choices"]):
                allowed = ", ".join(str(choice) for choice in knob["choices"])
                raise ValueError(f"knob '{name}' is one of {allowed}, not {value!r}")
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
