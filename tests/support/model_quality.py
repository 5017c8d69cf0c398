"""The quality suite on an engine in this process, and weights that are coarser than the model's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from engine_host.engines.slim import Engine
from engine_host.engines.slim.weights import Weights
from protos.trial import Quality, QualityItem


def coarser(weights: Weights, levels: int, way: float = 1.0) -> Weights:
    """Every matrix rounded to `levels` steps on each side of zero, one scale a row.

    127 is int8; the fewer, the coarser. `way`: how far weights go from what they are to that.
    """
    tensors = {name: _rounded(tensor, levels, way) for name, tensor in weights.tensors.items()}
    return replace(weights, tensors=tensors)


def _rounded(tensor: torch.Tensor, levels: int, way: float) -> torch.Tensor:
    if tensor.dim() != 2:
        return tensor
    values = tensor.float()
    scale = values.abs().amax(dim=1, keepdim=True) / levels
    rounded = (values / scale.clamp(min=1e-12)).round().mul(scale)
    return values.lerp(rounded, way).to(tensor.dtype)


def measured(
    engine: Engine, reference: Engine, items: Sequence[QualityItem], side: Literal["A", "B"]
) -> Quality:
    """What a host would see of an engine: its own scores, and its outputs in the start's eyes."""
    texts = [item for item in items if item.kind == "text"]
    asked = [item for item in items if item.kind != "text"]
    outputs = _served(engine, asked)
    said = [(item.prompt, output) for item, output in zip(asked, outputs, strict=True)]
    gaps = [score["gaps"] for score in _scores(reference, said)]
    own = _scores(engine, [(item.prompt, item.output) for item in texts])
    return _quality(side, own, outputs, gaps)


def of_start(reference: Engine, items: Sequence[QualityItem]) -> Quality:
    """The float32 start's side."""
    texts = [(item.prompt, item.output) for item in items if item.kind == "text"]
    tasks = [(item.prompt, item.output) for item in items if item.kind == "task"]
    gaps = [score["gaps"] for score in _scores(reference, tasks)]
    return _quality("R", _scores(reference, texts), [], gaps)


def text_losses(engine: Engine, held: Quality, items: Sequence[QualityItem]) -> list[float]:
    """Nats a token that an engine loses on each held-out passage against another side."""
    texts = [item for item in items if item.kind == "text"]
    found = _scores(engine, [(item.prompt, item.output) for item in texts])
    own = _quality("B", found, [], []).per_passage_nll
    return [x - y for x, y in zip(own, held.per_passage_nll, strict=False)]


def _quality(side: Any, scores: Any, outputs: Any, gaps: Any) -> Quality:
    sums = [-sum(score["logprobs"]) for score in scores]
    counts = [len(score["logprobs"]) for score in scores]
    means = tuple(total / count for total, count in zip(sums, counts, strict=True))
    return Quality(
        side, sum(counts), sum(sums), means, tuple(map(tuple, outputs)), tuple(map(tuple, gaps))
    )


def _scores(engine: Engine, pairs: Any) -> list[dict[str, Any]]:
    return engine.score([{"prompt": list(p), "output": list(o)} for p, o in pairs])


def _served(engine: Engine, asked: Sequence[QualityItem]) -> list[tuple[int, ...]]:
    tokens: list[list[int]] = [[] for _ in asked]
    for number, item in enumerate(asked):
        engine.submit({"id": number, "prompt": list(item.prompt), "max_tokens": item.tokens})
    while engine.busy():
        for output in engine.step():
            tokens[output["id"]] += output["tokens"]
    return [tuple(said) for said in tokens]
