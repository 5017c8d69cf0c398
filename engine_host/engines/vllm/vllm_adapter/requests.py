"""Requests and outputs, between the engine protocol and vLLM's own types."""

from dataclasses import dataclass
from typing import Any

from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind, SamplingParams


@dataclass
class Totals:
    """What an engine counts; the names are the protocol's."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    output_tokens: int = 0
    steps: int = 0
    preemptions: int = 0


def prompt_of(request: dict[str, Any], vocab: int, room: int) -> Any:
    """The checked prompt. Raises `ValueError` in one line."""
    number, prompt, output = request["id"], request["prompt"], request["max_tokens"]
    if not prompt:
        raise ValueError(f"request {number} has an empty prompt")
    wrong = [t for t in prompt if type(t) is not int or not 0 <= t < vocab]
    if wrong:
        raise ValueError(f"request {number} has token {wrong[0]!r}, outside 0..{vocab - 1}")
    if type(output) is not int or output < 1:
        raise ValueError(f"request {number} asks for {output!r} tokens; the least is 1")
    if len(prompt) + output > room:
        raise ValueError(
            f"request {number} has {len(prompt)} + {output} tokens, over the {room} there is "
            "room for"
        )
    return tokens_input(list(prompt))


def sampling_of(request: dict[str, Any], eos_ids: tuple[int, ...]) -> SamplingParams:
    """How a request's tokens are chosen and given out: as they are made."""
    temperature = request.get("temperature", 0.0)
    ignore_eos = request.get("ignore_eos", True)
    return SamplingParams(
        max_tokens=request["max_tokens"],
        temperature=temperature,
        top_p=request.get("top_p", 1.0),
        seed=request.get("seed", 0) if temperature > 0 else None,
        ignore_eos=ignore_eos,
        stop_token_ids=None if ignore_eos else list(eos_ids),
        logprobs=0 if request.get("logprobs", False) else None,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def scoring_of() -> SamplingParams:
    """A request whose prompt is scored."""
    return SamplingParams(
        max_tokens=1,
        temperature=0.0,
        ignore_eos=True,
        prompt_logprobs=1,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def finish_of(reason: str | None) -> str | None:
    """`length` or `stop`; vLLM's other reasons mean that it failed. Raises `RuntimeError`."""
    if reason in (None, "length", "stop"):
        return reason
    raise RuntimeError(f"vLLM ended a request with '{reason}'")


def logprobs_of(found: Any, tokens: list[int]) -> list[float] | None:
    """The log-probability of each token, where they were asked for."""
    if found is None:
        return None
    return [min(0.0, one[token].logprob) for one, token in zip(found, tokens, strict=True)]


def score_of(found: Any, sequence: dict[str, Any]) -> dict[str, Any]:
    """What the protocol says of a scored sequence, from the log-probabilities of its tokens."""
    result: dict[str, Any] = {"logprobs": [], "gaps": [], "top": []}
    for at, token in enumerate(sequence["output"], start=len(sequence["prompt"])):
        entries = found[at]
        top = max(entries, key=lambda one: entries[one].logprob)
        if entries[token].rank == 1:
            top = token
        result["logprobs"].append(min(0.0, entries[token].logprob))
        result["gaps"].append(entries[top].logprob - entries[token].logprob)
        result["top"].append(top)
    return result
