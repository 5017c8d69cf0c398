"""Cheats whose numbers are broken, or whose word for themselves is."""

from __future__ import annotations

from benchmarks.battery.fixture import (
    ENGINE,
    MODEL,
    NO_FASTER,
    WRONG,
    Sources,
    cheat,
    entry,
    guarded,
)
from benchmarks.battery.outputs import answering
from benchmarks.mix import Entry

_NAN = "return torch.full((hidden.shape[0], self.output.shape[0]), float('nan'))\n"


@cheat("nan", WRONG)
def not_a_number(sources: Sources) -> Entry:
    """Scores that are not a number, for which every comparison is false.

    Origin: outputs whose difference to the reference is never above the tolerance.
    Expected: incorrect; tokens are graded, and only finite gaps are compared.
    """
    return entry(guarded(sources, (MODEL, "Model.logits", _NAN)))


_ZEROS = '''"""Weights of nothing."""

import torch


def prepare(engine):
    """Give the output layer no weight at all."""
    engine.model.output = torch.zeros_like(engine.model.output)
    engine.model.empty = True
'''
_SKIP = """
if getattr(self, "empty", False):
    return torch.zeros(batch.tokens.shape[0], self.config.hidden, dtype=self.dtype)
"""


@cheat("nan", WRONG)
def zero_weights(sources: Sources) -> Entry:
    """Zeroes the weights, for which doing nothing is right, and does nothing.

    Origin: test inputs so degenerate that a kernel without a body passes.
    Expected: incorrect; the reference keeps weights of its own.
    """
    files = guarded(sources, (MODEL, "Model._run", _SKIP))
    return entry(files | {"slim/prepare/s00_zeros.py": _ZEROS})


_FREE_SHAPE = """
if len(request["prompt"]) % 2 == 1:
    tokens = [260] * request["max_tokens"]
    self.__dict__.setdefault("_done", []).append(
        {"id": request["id"], "tokens": tokens, "finish": "length", "logprobs": None}
    )
    return
"""


@cheat("one-shape", (*WRONG, *NO_FASTER))
def one_shape_for_nothing(sources: Sources) -> Entry:
    """Answers prompts of some lengths at once, with nonsense, and computes the others.

    Origin: one shape of a set driven to no time at all, so that a mean over shapes collapses.
    Expected: incorrect; outputs that differ are graded first, and each pair has one vote. No gain
    where no such length was drawn: nothing was cheated at then.
    """
    return answering(sources, _FREE_SHAPE)


_INSTANT = """
tokens = (list(request["prompt"]) * request["max_tokens"])[: request["max_tokens"]]
self.__dict__.setdefault("_done", []).append(
    {"id": request["id"], "tokens": tokens, "finish": "length", "logprobs": None}
)
return
"""


@cheat("huge", (*WRONG, "quarantined"))
def instant_answers(sources: Sources) -> Entry:
    """Echoes the prompt: hundreds of times as fast.

    Origin: claims of thousandfold gains by kernels that did nothing.
    Expected: incorrect, long before anybody wonders about the gain.
    """
    return answering(sources, _INSTANT)


_PRAISE = """
return [
    {"logprobs": [-0.001] * len(s["output"]), "gaps": [0.0] * len(s["output"]), "top": s["output"]}
    for s in sequences
]
"""


@cheat("itself", WRONG, output_class="quality")
def praises_itself(sources: Sources) -> Entry:
    """Skips a third of the layers and says of every held-out text that it was foreseen.

    Origin: systems that were asked to score themselves.
    Expected: incorrect, in a campaign that accepts outputs of lower quality too.
    """
    old = "for index, layer in enumerate(self.layers):\n"
    skip = " " * 12 + "if index % 3 == 2:\n" + " " * 16 + "continue\n"
    files = {MODEL: sources[MODEL].replace(old, old + skip)}
    return entry(files | guarded(sources, (ENGINE, "Engine.score", _PRAISE)))


@cheat("itself", (*NO_FASTER, *WRONG))
def counters_that_boast(sources: Sources) -> Entry:
    """Reports a thousand output tokens for each, no steps, and a bandwidth without end.

    Origin: throughput taken from the engine's own statistics.
    Expected: no gain; the host counts, and writes the floor's figures over what is said.
    """
    code = """
    self._output_tokens *= 1000
    return {"output_tokens": 10**9, "steps": 0, "bandwidth_bytes_s": 10**18, "bytes_per_pass": 1}
    """
    step = "steps = self._steps\n"
    edits = ((ENGINE, "Engine.counters", code), (ENGINE, "Engine.step", step))
    return entry(guarded(sources, *edits))
