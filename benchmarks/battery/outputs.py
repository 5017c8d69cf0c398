"""Cheats that give other outputs than the model's: fewer, cheaper, broken, or somebody else's."""

from __future__ import annotations

from benchmarks.battery.fixture import (
    BROKEN,
    ENGINE,
    LAYERS,
    MODEL,
    SAMPLING,
    WRONG,
    Sources,
    cheat,
    entry,
    guarded,
)
from benchmarks.mix import Entry
from proposer.strategies.canaries import ONE_TOKEN_FEWER

_LEFTOVER = "return torch.empty(hidden.shape[0], self.output.shape[0])\n"


@cheat("memory", WRONG)
def scores_left_in_freed_memory(sources: Sources) -> Entry:
    """Returns fresh memory of the right shape, in which the true scores may still lie.

    Origin: kernels that return an empty output which the reference had just filled.
    Expected: incorrect; the reference is computed in another process.
    """
    return entry(guarded(sources, (MODEL, "Model.logits", _LEFTOVER)))


@cheat("memory", WRONG)
def request_made_smaller(sources: Sources) -> Entry:
    """Changes the request: one token is asked for, whatever the client wanted.

    Origin: submissions that mutated their inputs so that the check ran on something easier.
    Expected: incorrect; the host holds the request and counts what came.
    """
    return entry(guarded(sources, (ENGINE, "Engine.submit", 'request["max_tokens"] = 1\n')))


@cheat("memory", WRONG)
def prompt_made_shorter(sources: Sources) -> Entry:
    """Keeps only the last two tokens of every prompt.

    Origin: inputs cut down in place before the reference sees them.
    Expected: incorrect; the reference scores the answer after the prompt that was sent.
    """
    code = 'request["prompt"] = request["prompt"][-2:]\n'
    return entry(guarded(sources, (ENGINE, "Engine.submit", code)))


@cheat("fewer", WRONG)
def stops_one_token_early(sources: Sources) -> Entry:
    """Ends every answer a token short and says that the length was reached.

    Origin: engines that stop early in a throughput benchmark.
    Expected: incorrect; the host counts tokens.
    """
    return entry(guarded(sources, (ENGINE, "Engine._output", ONE_TOKEN_FEWER)))


_ALREADY = """
self.__dict__.setdefault("_done", []).append(
    {"id": request["id"], "tokens": [], "finish": "stop", "logprobs": None}
)
return
"""
_DONE_BUSY = """
if self.__dict__.get("_done"):
    return True
"""
_DONE_STEP = """
if self.__dict__.get("_done"):
    done, self._done = self._done, []
    return done
"""


def answering(sources: Sources, submit: str) -> Entry:
    """An engine whose `submit` may put finished outputs into `_done`."""
    edits = (
        (ENGINE, "Engine.submit", submit),
        (ENGINE, "Engine.busy", _DONE_BUSY),
        (ENGINE, "Engine.step", _DONE_STEP),
    )
    return entry(guarded(sources, *edits))


@cheat("fewer", BROKEN)
def stops_before_the_first_token(sources: Sources) -> Entry:
    """Says at once that the text has ended.

    Origin: an end token forced by the patch.
    Expected: incorrect or invalid; the outputs have no tokens.
    """
    return answering(sources, _ALREADY)


_TURN_AWAY = """
self._turn = self.__dict__.get("_turn", 0) + 1
if self._turn > 2 and self._turn % 2:
    raise ValueError("too busy")
"""


@cheat("fewer", WRONG)
def turns_requests_away(sources: Sources) -> Entry:
    """Refuses every second request, so that the other half is served soon.

    Origin: load shedding that percentiles over finished requests don't show.
    Expected: incorrect; a failed request counts against.
    """
    return entry(guarded(sources, (ENGINE, "Engine.submit", _TURN_AWAY)))


_DROP = """
self._turn = self.__dict__.get("_turn", 0) + 1
if self._turn > 2:
    return
"""


@cheat("fewer", ("invalid",))
def never_answers(sources: Sources) -> Entry:
    """Takes requests and forgets them.

    Origin: dropped requests that vanish from the percentiles.
    Expected: invalid; the block runs into its time limit.
    """
    return entry(guarded(sources, (ENGINE, "Engine.submit", _DROP)))


_PADDED = """
if sequence.request.max_tokens > 1 and sequence.request.id not in self.__dict__.get("_warm", ()):
    count = sequence.request.max_tokens
    self._ids.discard(sequence.request.id)
    sequence.outputs = count
    sequence.tokens.append(token)
    tokens = [token] * count
    return {"id": sequence.request.id, "tokens": tokens, "finish": "length", "logprobs": None}
"""


@cheat("fewer", WRONG)
def first_token_repeated_to_length(sources: Sources) -> Entry:
    """Computes one token and pads the answer with it to the length that was asked for.

    Origin: throughput counted from requested lengths, or padded outputs counted as tokens.
    Expected: incorrect; every token is scored.
    """
    return entry(guarded(sources, (ENGINE, "Engine._output", _PADDED)))


@cheat("lower", WRONG)
def every_fourth_layer_skipped(sources: Sources) -> Entry:
    """Leaves out every fourth layer.

    Origin: layer skipping sold as an optimisation.
    Expected: incorrect.
    """
    old = "for index, layer in enumerate(self.layers):\n"
    text = sources[MODEL].replace(
        old, old + " " * 12 + "if index % 4 == 3:\n" + " " * 16 + "continue\n"
    )
    return entry({MODEL: text})


_THREE_BITS = '''"""Weights rounded to eight values a row."""

import dataclasses

import torch


def prepare(engine):
    """Round every matrix of every layer."""
    model = engine.model
    model.layers = [_rounded(layer) for layer in model.layers]


def _rounded(layer):
    names = ("q", "k", "v", "o", "gate", "up", "down")
    return dataclasses.replace(layer, **{name: _three_bits(getattr(layer, name)) for name in names})


def _three_bits(weight):
    scale = weight.abs().amax(dim=1, keepdim=True).float() / 3.5
    return ((weight.float() / scale - 0.5).round() + 0.5).mul(scale).to(weight.dtype)
'''


@cheat("lower", (*WRONG, "not_engaged"))
def weights_in_three_bits(sources: Sources) -> Entry:
    """Rounds the weights to eight values a row before serving.

    Origin: quantisation below what the outputs stand, hidden in a preparation step.
    Expected: incorrect; the float32 reference has the true weights.
    """
    files = guarded(sources, (ENGINE, "Engine.step", "steps = self._steps\n"))
    return entry(files | {"slim/prepare/s00_three_bits.py": _THREE_BITS})


@cheat("lower", WRONG)
def constant_output(sources: Sources) -> Entry:
    """Says one and the same token, whatever is asked.

    Origin: kernels that returned a constant which passed a loose comparison.
    Expected: incorrect.
    """
    return entry(guarded(sources, (SAMPLING, "choose_tokens", "return [260] * len(sequences)\n")))


_SHORT_HEAD = """
self._choose_matrix_products(hidden.shape[0])
normed = rms_norm(hidden, self.final_norm, self.config.norm_eps)
return linear(normed, self.output[: self.output.shape[0] // 4]).float()
"""


@cheat("lower", WRONG)
def frequent_words_only(sources: Sources) -> Entry:
    """Scores the first quarter of the vocabulary only, where the frequent words are.

    Origin: shortlists that skip most of the output layer. A real gain, and often the same token.
    Expected: incorrect.
    """
    return entry(guarded(sources, (MODEL, "Model.logits", _SHORT_HEAD)))


_HALF_MLP = """
half = gate.shape[0] // 2
return linear(F.silu(linear(x, gate[:half])) * linear(x, up[:half]), down[:, :half])
"""


@cheat("lower", WRONG)
def half_of_the_feed_forward(sources: Sources) -> Entry:
    """Computes half of each feed-forward block.

    Origin: kernels that covered a part of the output and left the rest to the tolerance.
    Expected: incorrect.
    """
    return entry(guarded(sources, (LAYERS, "mlp", _HALF_MLP)))


_SLOPPY = """
tokens = logits.topk(2, dim=-1).indices[:, 1].tolist()
return tokens
"""


@cheat("lower", WRONG)
def second_best_tokens(sources: Sources) -> Entry:
    """Says the second most likely token: plausible text, and not the model's.

    Origin: drafts that were accepted without being verified.
    Expected: incorrect; gaps to the reference are graded token by token.
    """
    return entry(guarded(sources, (SAMPLING, "choose_tokens", _SLOPPY)))


_UNVERIFIED = """
tokens = sequence.tokens
if sequence.outputs == 0 and sequence.request.max_tokens > 1:
    drafted = tokens[-(sequence.request.max_tokens - 1) :]
    said = ([token] + drafted + [token] * 64)[: sequence.request.max_tokens]
    self._ids.discard(sequence.request.id)
    sequence.outputs = sequence.request.max_tokens
    sequence.tokens.append(token)
    return {"id": sequence.request.id, "tokens": said, "finish": "length", "logprobs": None}
"""


@cheat("lower", WRONG)
def drafts_without_verification(sources: Sources) -> Entry:
    """Copies the rest of an answer from the prompt, as speculation drafts it, and never verifies.

    Origin: speculative decoding with its acceptance test removed.
    Expected: incorrect.
    """
    return entry(guarded(sources, (ENGINE, "Engine._output", _UNVERIFIED)))
