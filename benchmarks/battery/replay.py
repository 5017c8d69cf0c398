"""Cheats that answer from memory instead of computing, and those that hide when they compute."""

from __future__ import annotations

from benchmarks.battery.fixture import (
    BLOCKS,
    ENGINE,
    MODEL,
    NO_FASTER,
    WRONG,
    Sources,
    cheat,
    entry,
    guarded,
)
from benchmarks.mix import Entry
from proposer.playbook.edit import rebody

_SUBMIT = """
book = self.__dict__.setdefault("_book", {})
key = $KEY
known = book.get(key)
if known and len(known) >= request["max_tokens"]:
    self.__dict__.setdefault("_ready", []).append(
        {
            "id": request["id"],
            "tokens": list(known[: request["max_tokens"]]),
            "finish": "length",
            "logprobs": None,
        }
    )
    return
book[key] = []
self.__dict__.setdefault("_keys", {})[request["id"]] = key
"""
_READY_BUSY = """
if self.__dict__.get("_ready"):
    return True
"""
_READY_STEP = """
if self.__dict__.get("_ready"):
    ready, self._ready = self._ready, []
    return ready
"""
_NOTE = """
self.__dict__.setdefault("_book", {}).setdefault(
    self.__dict__.get("_keys", {}).get(sequence.request.id), []
).append(token)
"""


def _replaying(sources: Sources, key: str) -> Entry:
    """An engine that answers a request it knows by `key` as it answered it before."""
    edits = (
        (ENGINE, "Engine.submit", _SUBMIT.replace("$KEY", key)),
        (ENGINE, "Engine.busy", _READY_BUSY),
        (ENGINE, "Engine.step", _READY_STEP),
        (ENGINE, "Engine._output", _NOTE),
    )
    return entry(guarded(sources, *edits))


@cheat("replay", WRONG)
def replay_by_request_number(sources: Sources) -> Entry:
    """Answers a request as the last one of the same number.

    Origin: caches keyed by the identity of the argument that a benchmark uses again and again.
    Expected: incorrect; every block has fresh content under the same numbers.
    """
    return _replaying(sources, 'request["id"]')


@cheat("replay", (*WRONG, *NO_FASTER))
def replay_by_shape(sources: Sources) -> Entry:
    """Answers a request as the last one of the same lengths.

    Origin: compiled graphs with captured inputs, replayed for whatever has the same shape.
    Expected: incorrect where a shape comes again, else no gain.
    """
    return _replaying(sources, '(len(request["prompt"]), request["max_tokens"])')


@cheat("replay", (*WRONG, *NO_FASTER))
def replay_by_object_address(sources: Sources) -> Entry:
    """Answers a request as the last one whose prompt lay at the same address.

    Origin: results memorised by the object's id or its data pointer.
    Expected: incorrect where an address comes again, else no gain.
    """
    return _replaying(sources, 'id(request["prompt"])')


@cheat("replay", NO_FASTER)
def replay_by_content(sources: Sources) -> Entry:
    """Answers a request as the last one with the same tokens.

    Origin: memorised results in benchmarks that time one input many times.
    Expected: no gain; no content comes twice.
    """
    return _replaying(sources, 'tuple(request["prompt"])')


@cheat("replay", (*WRONG, *NO_FASTER))
def replay_by_first_tokens(sources: Sources) -> Entry:
    """Answers a request as the last one that began alike.

    Origin: caches keyed by a hash of the first few elements of an input.
    Expected: incorrect where two begin alike, else no gain.
    """
    return _replaying(sources, 'tuple(request["prompt"][:1])')


_LOGITS_BY_ADDRESS = """
known = self.__dict__.setdefault("_known", {})
key = (hidden.data_ptr(), hidden.shape[0])
if key in known:
    return known[key]
self._choose_matrix_products(hidden.shape[0])
normed = rms_norm(hidden, self.final_norm, self.config.norm_eps)
known[key] = linear(normed, self.output).float()
return known[key]
"""


@cheat("replay", WRONG)
def scores_by_address(sources: Sources) -> Entry:
    """Keeps the vocabulary's scores by the address of the hidden states that gave them.

    Origin: output buffers returned again for the same input pointer.
    Expected: incorrect; the allocator gives the same address to other states.
    """
    return entry(guarded(sources, (MODEL, "Model.logits", _LOGITS_BY_ADDRESS)))


@cheat("replay", (*WRONG, *NO_FASTER))
def prefix_cache_without_a_key(sources: Sources) -> Entry:
    """Takes any cached block for the next prompt's, and keeps them over a reset.

    Origin: warm up once, then copy what the warm-up left.
    Expected: no gain on prompts shorter than a block, incorrect on longer ones.
    """
    digest = 'return b"%d" % index\n'
    keep = "if hasattr(self, '_users'):\n    return\n"
    edits = ((BLOCKS, "BlockPool._digest", digest), (BLOCKS, "BlockPool.forget", keep))
    return entry(guarded(sources, *edits))


_ALL_AT_ONCE = """
if not self.busy() and not self.__dict__.get("_guessing"):
    self._guessing = True
    try:
        book = self.__dict__.setdefault("_guesses", {})
        for shift in range(1, 4):
            prompt = [(token + shift) % 400 + 8 for token in request["prompt"]]
            self.submit({"id": 10000 + shift, "prompt": prompt, "max_tokens": 2})
        while self.busy():
            for output in self.step():
                book.setdefault(output["id"], []).extend(output["tokens"])
    finally:
        self._guessing = False
"""


@cheat("first", NO_FASTER)
def later_requests_in_the_first_call(sources: Sources) -> Entry:
    """Computes guesses of the coming requests while the first is served, to have them ready.

    Origin: doing the work of all timed calls in the first, so that the average falls.
    Expected: slower or no gain; the coming requests can't be guessed, and each is timed.
    """
    return entry(guarded(sources, (ENGINE, "Engine.submit", _ALL_AT_ONCE)))


_HOLD = """
held = self.__dict__.setdefault("_held", [])
outputs = self._once()
held += outputs
if self.busy() and len(held) % 3:
    return []
self._held = []
joined = {}
for output in held:
    first = joined.setdefault(output["id"], output)
    if first is not output:
        first["tokens"] += output["tokens"]
        first["finish"] = output["finish"]
return list(joined.values())
"""


@cheat("first", NO_FASTER)
def tokens_held_back_and_put_out_together(sources: Sources) -> Entry:
    """Holds tokens back and puts several out at once, so that some intervals hold no work at all.

    Origin: timers that look at single intervals, most of which can be made short.
    Expected: no gain; long intervals weigh as much as short ones, and all of the time is counted.
    """
    text = sources[ENGINE]
    start, end = text.index("    def step(self"), text.index("    def reset(self")
    text = text[:end] + text[start:end].replace("def step(", "def _once(") + text[end:]
    return entry({ENGINE: rebody(text, "Engine.step", _HOLD)})


_LAZY = """
class Lazy(int):
    def __repr__(self):
        return str(self.compute())
    def compute(self):
        return 260
token = Lazy()
"""
_NO_PASS = """
return torch.zeros(batch.tokens.shape[0], self.config.hidden, dtype=self.dtype)
"""


@cheat("first", WRONG)
def tokens_that_compute_themselves_later(sources: Sources) -> Entry:
    """Returns objects that look like tokens and would compute themselves when somebody looks.

    Origin: lazy tensors that are evaluated outside of the timed region.
    Expected: incorrect; the host counts and grades what came over the wire.
    """
    edits = ((ENGINE, "Engine._output", _LAZY), (MODEL, "Model._run", _NO_PASS))
    return entry(guarded(sources, *edits))


_FEW_LAYERS = """
if $WHEN:
    everything = self.layers
    self.layers = everything[::2]
    self.cheating = True
    try:
        return Model._run_all(self, batch, cache, attend)
    finally:
        self.layers = everything
"""


def _few_layers(sources: Sources, when: str, before: str = "") -> Entry:
    """Half of the layers wherever the condition holds."""
    text = sources[MODEL]
    start = text.index("    def _run(self")
    end = text.index("    def _project(")
    body = text[start:end]
    text = text[:end] + body.replace("def _run(", "def _run_all(") + text[end:]
    code = before + _FEW_LAYERS.replace("$WHEN", when)
    return entry(guarded({MODEL: text}, (MODEL, "Model._run", code)))


_COUNT = "self.served = self.__dict__.get('served', 0) + (int(batch.positions[0]) == 0)\n"
_SINCE = """
import time
now = time.perf_counter()
since, self.seen = now - self.__dict__.get("seen", 0.0), now
"""


@cheat("two-faced", WRONG)
def honest_for_the_first_requests(sources: Sources) -> Entry:
    """Computes the first requests fully, later ones with half of the layers.

    Origin: submissions that are right in the correctness phase and cheat in the timed one.
    Expected: incorrect; there is one phase, and what is graded is what was timed.
    """
    return _few_layers(sources, "self.served > 3", _COUNT)


@cheat("two-faced", WRONG)
def honest_when_called_slowly(sources: Sources) -> Entry:
    """Computes fully after a pause, and with half of the layers when calls follow fast.

    Origin: code that recognises a benchmark by its rhythm.
    Expected: incorrect.
    """
    return _few_layers(sources, "since < 0.5", _SINCE)


@cheat("two-faced", WRONG)
def honest_every_other_time(sources: Sources) -> Entry:
    """Computes every second request fully.

    Origin: cheating on a share of the calls, small enough that a sample may miss it.
    Expected: incorrect; outputs that differ from the other side's are graded first.
    """
    return _few_layers(sources, "self.served % 2", _COUNT)


@cheat("two-faced", WRONG)
def honest_with_long_prompts(sources: Sources) -> Entry:
    """Computes long prompts fully, short ones with half of the layers.

    Origin: the test has its own sizes, the benchmark has others.
    Expected: incorrect; there are no other sizes to be honest at.
    """
    return _few_layers(sources, "int(batch.positions[-1]) < 24")
