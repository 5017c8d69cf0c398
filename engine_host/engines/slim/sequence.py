"""A request while it is served."""

from dataclasses import dataclass, field
from typing import Any

_DEFAULTS: dict[str, Any] = {
    "temperature": 0.0,
    "top_p": 1.0,
    "seed": 0,
    "ignore_eos": True,
    "logprobs": False,
}


@dataclass(frozen=True)
class Request:
    """What was asked. `temperature` 0 is greedy; `seed` alone decides what is sampled."""

    id: int
    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    ignore_eos: bool
    logprobs: bool


@dataclass
class Sequence:
    """Tokens so far and what the cache holds of them.

    computed: leading tokens whose keys and values are in `blocks`; blocks: cache blocks in order;
    digests: of the token blocks, as far as asked for; known_blocks: leading blocks made known for
    reuse; outputs: tokens made so far; admitted: whether it ever ran.
    """

    request: Request
    tokens: list[int]
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    known_blocks: int = 0
    outputs: int = 0
    admitted: bool = False

    @property
    def pending(self) -> int:
        """Tokens that must be computed before the next can be chosen."""
        return len(self.tokens) - self.computed


def parse_request(raw: dict[str, Any], vocab: int, max_tokens_in_all: int) -> Request:
    """Check a request of the engine protocol. Raises `ValueError` with one line."""
    absent = [key for key in ("id", "prompt", "max_tokens") if key not in raw]
    if absent:
        raise ValueError(f"the request lacks '{absent[0]}'")
    unknown = set(raw) - {"id", "prompt", "max_tokens"} - set(_DEFAULTS)
    if unknown:
        raise ValueError(f"the request has an unknown key '{sorted(unknown)[0]}'")
    values = {**_DEFAULTS, **raw, "prompt": tuple(raw["prompt"])}
    request = Request(**values)
    if not request.prompt:
        raise ValueError("the prompt is empty")
    if request.max_tokens < 1:
        raise ValueError(f"max_tokens is at least 1, not {request.max_tokens}")
    if min(request.prompt) < 0 or max(request.prompt) >= vocab:
        raise ValueError(f"the prompt has a token outside 0 to {vocab - 1}")
    total = len(request.prompt) + request.max_tokens
    if total > max_tokens_in_all:
        raise ValueError(
            f"{len(request.prompt)} prompt tokens and {request.max_tokens} to come exceed "
            f"the {max_tokens_in_all} that fit"
        )
    if not request.temperature >= 0.0:
        raise ValueError(f"temperature is 0 or more, not {request.temperature}")
    if not 0.0 < request.top_p <= 1.0:
        raise ValueError(f"top_p is more than 0 and at most 1, not {request.top_p}")
    return request
