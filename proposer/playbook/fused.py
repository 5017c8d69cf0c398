"""The whole decode step in one C call, with weights as they are or packed smaller."""

from __future__ import annotations

from proposer.playbook.edit import AnchorGoneError, guard, holds, swap
from proposer.playbook.native import library, prepare_step, template
from proposer.playbook.rewrite import Change, Parameter, Rewrite, Settings, Sources
from protos.candidate import Scalar

_KINDS = {
    "bf16": ("rows_bf16",),
    "int8": ("rows_bf16", "rows_int8"),
    "grid4": ("rows_bf16", "rows_int8", "rows_grid4"),
}
_DEFAULTS: dict[str, Scalar] = {"weights": "huge", "max_rows": 8, "prompt_rows": 0, "threads": 0}
_STEP = """
if plan.decode:
    chunks = [(sequence, 1) for sequence in plan.decode]
    batch = self._batch(chunks)
    outputs += self._advance(chunks, self.model.decode(batch, self.cache))
"""
_FUSED_STEP = """
fused = getattr(self.model, "fused", None)
if plan.decode and fused is not None and fused.takes(plan.decode):
    outputs += fused.advance(self, plan.decode)
elif plan.decode:
    chunks = [(sequence, 1) for sequence in plan.decode]
    batch = self._batch(chunks)
    outputs += self._advance(chunks, self.model.decode(batch, self.cache))
"""
_FUSED_DECODE = """
fused = getattr(self, "fused", None)
if fused is not None and fused.takes_batch(batch, cache, True):
    return fused.hidden(batch)
"""
_FUSED_PREFILL = """
fused = getattr(self, "fused", None)
if fused is not None and fused.takes_batch(batch, cache, False):
    return fused.hidden(batch)
"""
_FUSED_LOGITS = """
fused = getattr(self, "fused", None)
if fused is not None and fused.takes_logits(hidden):
    return fused.logits(hidden)
"""


def _native(sources: Sources, kind: str, settings: Settings) -> Change:
    """The library and the step that loads it; those of an earlier winner are exchanged."""
    head = "int8" if kind == "grid4" else kind
    defines = (
        f"#define LAYER_KIND(f) {kind}_##f\n#define HEAD_KIND(f) {head}_##f\n"
        f"#define WANTS_SUMS {int(kind == 'grid4')}\n"
        f"#define LAYER_PAIRS {int(kind == 'bf16')}\n#define HEAD_PAIRS {int(head == 'bf16')}\n"
    )
    files, build = library("fused", "lanes", *_KINDS[kind], "step", defines=defines)
    text = template("fused", {**_DEFAULTS, **settings, "kind": kind})
    there = [path for path in sources if path.endswith("_fused.py") and "/prepare/" in path]
    files |= {there[0]: text} if there else prepare_step(sources, "fused", text)
    return Change(files, (build,))


def _step(kind: str, sources: Sources, settings: Settings) -> Change:
    """Greedy decoding in one call; prompts of few tokens, and logits of few rows, in one each."""
    change = _native(sources, kind, settings)
    engine, model = sources["slim/engine.py"], sources["slim/model.py"]
    if not holds(engine, "Engine.step", _FUSED_STEP):
        engine = swap(engine, "Engine.step", _STEP, _FUSED_STEP)
    for function, code in (("Model.prefill", _FUSED_PREFILL), ("Model.logits", _FUSED_LOGITS)):
        if not holds(model, function, code):
            model = guard(model, function, code)
    files = {"slim/engine.py": engine, "slim/model.py": model}
    return Change(change.files | files, change.builds)


def _layers(sources: Sources, settings: Settings) -> Change:
    path = "slim/model.py"
    if holds(sources[path], "Model.decode", _FUSED_DECODE):
        raise AnchorGoneError("the stack of layers is one call already")
    change = _native(sources, "bf16", settings)
    model = guard(sources[path], "Model.decode", _FUSED_DECODE)
    return Change(change.files | {path: model}, change.builds)


_WEIGHTS = Parameter("weights", ("huge", "in_place"))
_ROWS = Parameter("max_rows", (8, 1, 32))
_PROMPTS = Parameter("prompt_rows", (64, 0, 16))
_THREADS = Parameter("threads", (0, 1))

FUSED_STEP = Rewrite(
    "fused-step",
    "Decoding is bound by reading the weights: one parallel region in C for the whole step, greedy "
    "choice included, leaves nothing between two reads; short prompts take the same way.",
    lambda sources, settings: _step("bf16", sources, settings),
    (_WEIGHTS, _ROWS, _PROMPTS, _THREADS),
)
FUSED_LAYERS = Rewrite(
    "fused-layers",
    "The stack of layers in one parallel region in C; logits and sampling stay as they are, so "
    "every kind of request gains.",
    _layers,
    (_WEIGHTS, _ROWS),
)
GRID4 = Rewrite(
    "grid4-weights",
    "A checkpoint that was widened from 4 bits still lies on grids of 16 steps: stored as such, a "
    "pass reads 2.1 times fewer bytes, of the same weights up to their rounding.",
    lambda sources, settings: _step("grid4", sources, settings),
    (_ROWS,),
)
INT8 = Rewrite(
    "int8-weights",
    "Weights as int8 with a scale for 32 of them read 1.8 times fewer bytes, at a small loss of "
    "precision.",
    lambda sources, settings: _step("int8", sources, settings),
    (_ROWS,),
    output_class="quality",
)
