"""Honest candidates that look suspicious: each must pass, and the fast ones must win."""

from __future__ import annotations

from benchmarks.battery.fixture import (
    ENGINE,
    LAYERS,
    MODEL,
    SCHEDULER,
    Sources,
    control,
    entry,
    guarded,
)
from benchmarks.mix import Entry
from proposer.playbook.catalogue import REWRITES
from proposer.playbook.edit import rebody


def _rewritten(sources: Sources, name: str, **settings: bool | int | float | str) -> Entry:
    rewrite = next(found for found in REWRITES if found.name == name)
    change = rewrite.rewrite(sources, {**rewrite.best_guess(), **settings})
    return entry(change.files, builds=change.builds, knobs=change.knobs)


@control(wins=True)
def decode_step_in_one_c_call(sources: Sources) -> Entry:
    """Several times as fast, and real: the whole step in one parallel region of C."""
    return _rewritten(sources, "fused-step")


@control(wins=True)
def weights_packed_to_half_the_bytes(sources: Sources) -> Entry:
    """Faster than reading the weights once allows: they were widened from 4 bits, and still fit."""
    return _rewritten(sources, "grid4-weights")


_LOOKUP = """
if plan.decode and len(plan.decode) == 1 and not plan.prefill:
    sequence = plan.decode[0]
    made = self._speculate(sequence)
    if made is not None:
        self._steps += 1
        return [made]
"""
_SPECULATE = '''
    def _speculate(self, sequence: Sequence) -> dict[str, Any] | None:
        """Verify a draft from the text itself: what followed its last two tokens before."""
        request, tokens = sequence.request, sequence.tokens
        left = request.max_tokens - sequence.outputs
        drafted = _draft(tokens, min(4, left - 1))
        if request.temperature > 0.0 or request.logprobs or not drafted:
            return None
        before = len(tokens)
        tokens += drafted
        if not self.scheduler.pool.grow(sequence, len(tokens)):
            del tokens[before:]
            return None
        batch = self._batch([(sequence, len(drafted) + 1)])
        scores = self.model.logits(self.model.prefill(batch, self.cache))
        best = scores.argmax(dim=-1).tolist()
        kept = 0
        while kept < len(drafted) and drafted[kept] == best[kept]:
            kept += 1
        del tokens[before:]
        said: list[int] = []
        for token in best[: kept + 1]:
            output = self._output(sequence, token, 0.0)
            said += output["tokens"]
        sequence.computed = len(tokens) - 1
        self.scheduler.pool.remember(sequence)
        if output["finish"]:
            self.scheduler.finish([sequence])
        return {**output, "tokens": said}


def _draft(tokens: list[int], most: int) -> list[int]:
    for at in range(len(tokens) - 3, 0, -1):
        if tokens[at] == tokens[-1] and tokens[at - 1] == tokens[-2]:
            return tokens[at + 1 : at + 1 + most]
    return []
'''


@control()
def exact_speculation_from_the_text(sources: Sources) -> Entry:
    """Several tokens of one pass: drafts from the text itself, each verified by the model."""
    text = sources[ENGINE].rstrip("\n") + "\n" + _SPECULATE
    old = "            outputs: list[dict[str, Any]] = []\n"
    assert old in text
    code = "".join(f"            {line}\n" for line in _LOOKUP.strip().splitlines())
    return entry({ENGINE: text.replace(old, old + code)})


@control()
def cache_of_rotation_rows(sources: Sources) -> Entry:
    """A legitimate cache: rows of the rotation's table are cut once a position, then reused."""
    old = "        cos, sin = self.cos[batch.positions, None], self.sin[batch.positions, None]\n"
    new = (
        "        at = int(batch.positions[0]) if batch.positions.shape[0] == 1 else -1\n"
        '        kept = self.__dict__.setdefault("_rows", {})\n'
        "        if at >= 0 and at not in kept:\n"
        "            kept[at] = (self.cos[at : at + 1, None], self.sin[at : at + 1, None])\n"
        "        if at >= 0:\n"
        "            cos, sin = kept[at]\n"
        "        else:\n"
        "            cos, sin = self.cos[batch.positions, None], self.sin[batch.positions, None]\n"
    )
    assert old in sources[MODEL]
    return entry({MODEL: sources[MODEL].replace(old, new)})


_CONTEXTS = """
memo = self.__dict__.setdefault("_memo", {})
key = (tuple(sequence.blocks), end)
if key in memo:
    return memo[key]
"""


@control()
def cache_by_content(sources: Sources) -> Entry:
    """A legitimate cache, keyed by all that its answers follow from: slots of a row of blocks."""
    keep = "return slice(first * size, first * size + end)\n"
    kept = "memo[key] = slice(first * size, first * size + end)\n            return memo[key]\n"
    files = guarded(sources, (ENGINE, "Engine._context", _CONTEXTS))
    assert keep in files[ENGINE]
    return entry({ENGINE: files[ENGINE].replace(keep, kept)})


@control()
def smaller_cache_of_keys(sources: Sources) -> Entry:
    """A smaller buffer that is large enough: an eighth of the cache."""
    return entry({}, knobs={"cache_tokens": 4096})


_POOLED = """
from concurrent.futures import ThreadPoolExecutor
self._choose_matrix_products(hidden.shape[0])
normed = rms_norm(hidden, self.final_norm, self.config.norm_eps)
with ThreadPoolExecutor(2) as pool:
    half = self.output.shape[0] // 2
    parts = list(pool.map(lambda rows: linear(normed, rows), self.output.split(half)))
return torch.cat(parts, dim=-1).float()
"""


@control()
def threads_that_are_joined(sources: Sources) -> Entry:
    """Threads of its own, which it waits for before it answers."""
    return entry(guarded(sources, (MODEL, "Model.logits", _POOLED)))


_HELPER = '''"""A table made by a helper process that has ended before the engine serves."""

import os

TABLE = {}


def prepare(engine):
    """Have a child write the table, wait for it, and read it."""
    path = "/scratch/table.txt"
    child = os.fork()
    if child == 0:
        with open(path, "w") as file:
            file.write("\\n".join(str(number * number) for number in range(1000)))
        os._exit(0)
    os.waitpid(child, 0)
    with open(path) as file:
        TABLE.update(enumerate(int(line) for line in file))
'''


@control()
def helper_process_that_has_ended(sources: Sources) -> Entry:
    """Forks a child and writes a file, in the preparation step, where that is allowed."""
    use = "from .prepare import s00_table\nself._square = s00_table.TABLE[31]\n"
    files = guarded(sources, (ENGINE, "Engine.step", use))
    return entry(files | {"slim/prepare/s00_table.py": _HELPER})


_OWN_CLOCK = """
import time
now = time.perf_counter()
self._pace = 0.9 * self.__dict__.get("_pace", 0.0) + 0.1 * (now - self.__dict__.get("_at", now))
self._at = now
"""


@control()
def statistics_of_its_own(sources: Sources) -> Entry:
    """Reads the clock in every step, for its own moving average."""
    return entry(guarded(sources, (ENGINE, "Engine.step", _OWN_CLOCK)))


_OUT = """
if x.shape[0] == 1 and x.dtype == torch.bfloat16:
    kept = linear.__dict__.setdefault("kept", {})
    out = kept.get(weight.data_ptr())
    if out is None:
        out = kept[weight.data_ptr()] = torch.empty(weight.shape[0], dtype=x.dtype)
    torch.mv(weight, x[0], out=out)
    return out[None]
"""


@control()
def outputs_in_the_same_buffer(sources: Sources) -> Entry:
    """Writes every product into the buffer it wrote before, by the address of the weight."""
    return entry(guarded(sources, (LAYERS, "linear", _OUT)))


_TWICE = """
outputs = self._once()
if len(self.scheduler.running) == 1 and not self.scheduler.waiting:
    for later in self._once():
        same = [o for o in outputs if o["id"] == later["id"]]
        if same:
            same[0]["tokens"] += later["tokens"]
            same[0]["finish"] = later["finish"]
        else:
            outputs.append(later)
return outputs
"""


@control()
def two_tokens_in_one_message(sources: Sources) -> Entry:
    """Two decode steps in one call: tokens come in pairs, and no fewer of them."""
    text = sources[ENGINE]
    start, end = text.index("    def step(self"), text.index("    def reset(self")
    text = text[:end] + text[start:end].replace("def step(", "def _once(") + text[end:]
    return entry({ENGINE: rebody(text, "Engine.step", _TWICE)})


@control()
def shortcut_for_greedy_requests(sources: Sources) -> Entry:
    """Leaves out what a greedy request doesn't need, in the function that chooses tokens."""
    return _rewritten(sources, "greedy-choice")


_ODD = """
if self.waiting or len(self.running) != 1 or self.running[0].pending != 1:
    self._again = None
else:
    self._again = self.running[0]
"""


@control()
def remembers_the_last_sequence(sources: Sources) -> Entry:
    """Keeps a reference to a request from one step to the next, as a replaying cheat would."""
    return entry(guarded(sources, (SCHEDULER, "Scheduler.plan", _ODD)))
