"""From a release's knobs to the flags and environment of vLLM's own command.

The knobs are those that vLLM's search space declares; how the resident engine takes them stands
beside it (`vllm_adapter/arguments.py`). What has no form here is listed, never dropped in silence.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from protos.candidate import Scalar

Knobs = Mapping[str, Scalar]
OPENMP, TCMALLOC = "libiomp5.so", "libtcmalloc_minimal.so.4"


@dataclass
class Command:
    """`vllm serve MODEL <flags>` with what it is started with. `preload` are library names."""

    flags: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    preload: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def flag(self, name: str, value: Scalar | None = None) -> None:
        self.flags += [name] if value is None else [name, shlex.quote(str(value))]


def command(knobs: Knobs, precision: str, max_context: int | None, cpu: bool) -> Command:
    """The command for all knobs at once. `max_context` is the model's, where it is known."""
    made = Command()
    made.flag("--dtype", precision)
    if cpu:
        made.preload.append(OPENMP)
    for name, value in knobs.items():
        if name in _FLAGS:
            made.flag(_FLAGS[name], value)
        elif name in _SWITCHES:
            made.flag(f"--{'' if value else 'no-'}{_SWITCHES[name]}")
        elif name in _RULES:
            _RULES[name](made, knobs, max_context)
        else:
            made.left_out.append(f"knob {name} = {value}: vLLM's command has nothing for it")
    return made


def _batched_tokens(made: Command, knobs: Knobs, max_context: int | None) -> None:
    tokens = int(knobs["max_num_batched_tokens"])
    if knobs.get("chunked_prefill") is False and max_context:
        tokens = max(tokens, max_context)  # whole prompts: a step has room for the longest one
    made.flag("--max-num-batched-tokens", tokens)


def _cache_bytes(made: Command, knobs: Knobs, max_context: int | None) -> None:
    made.flag("--kv-cache-memory-bytes", int(knobs["kv_cache_mib"]) << 20)


def _mode(made: Command, knobs: Knobs, max_context: int | None) -> None:
    if knobs["mode"] == "eager":
        made.flag("--enforce-eager")
    elif knobs["mode"] != "compiled":
        made.left_out.append(f"knob mode = {knobs['mode']}: vLLM's command has nothing for it")


def _quantization(made: Command, knobs: Knobs, max_context: int | None) -> None:
    if knobs["quantization"] != "none":
        made.flag("--quantization", knobs["quantization"])


def _speculation(made: Command, knobs: Knobs, max_context: int | None) -> None:
    if knobs["ngram_tokens"]:
        settings = {
            "method": "ngram",
            "num_speculative_tokens": knobs["ngram_tokens"],
            "prompt_lookup_max": knobs.get("ngram_lookup_max", 4),
            "prompt_lookup_min": 2,
        }
        made.flag("--speculative-config", json.dumps(settings, separators=(",", ":")))


def _allocator(made: Command, knobs: Knobs, max_context: int | None) -> None:
    if knobs["allocator"] == "tcmalloc":
        made.preload.append(TCMALLOC)


def _threads(made: Command, knobs: Knobs, max_context: int | None) -> None:
    if knobs.get("bind") is not False:
        last = int(knobs["threads"]) - 1
        made.environment["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{last}" if last else "0"
    else:
        made.environment["OMP_NUM_THREADS"] = str(knobs["threads"])


def _bind(made: Command, knobs: Knobs, max_context: int | None) -> None:
    if knobs["bind"] is False:
        made.environment["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"


def _with_another(made: Command, knobs: Knobs, max_context: int | None) -> None:
    """Goes into another knob's flag."""


_FLAGS = {
    "max_num_seqs": "--max-num-seqs",
    "long_prefill_token_threshold": "--long-prefill-token-threshold",
    "block_size": "--block-size",
    "kv_cache_dtype": "--kv-cache-dtype",
}
_SWITCHES = {
    "prefix_caching": "enable-prefix-caching",
    "chunked_prefill": "enable-chunked-prefill",
}
_RULES: dict[str, Callable[[Command, Knobs, int | None], None]] = {
    "max_num_batched_tokens": _batched_tokens,
    "kv_cache_mib": _cache_bytes,
    "mode": _mode,
    "quantization": _quantization,
    "ngram_tokens": _speculation,
    "ngram_lookup_max": _with_another,
    "allocator": _allocator,
    "threads": _threads,
    "bind": _bind,
}
