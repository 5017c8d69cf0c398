"""The checked-in mix of candidates that `perpetune bench rate` sends through the loop.

Every entry is made from the sources of slim's start release: knobs, function bodies, modules, C
kernels, and bad ones. `kind` says which; `grade` marks the entries that the comparison of the fast
and the slow tier uses. Half of the graded ones lie, on the machine they were
chosen on, within 20 % of the start.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from proposer.playbook import REWRITES, Rewrite
from protos.candidate import Build, Scalar

Sources = dict[str, str]


@dataclass(frozen=True)
class Entry:
    """One candidate of the mix; `files` are whole new texts by path."""

    label: str
    kind: str  # knob | function | module | kernel | bad
    files: Sources = field(default_factory=dict)
    knobs: dict[str, Scalar] = field(default_factory=dict)
    builds: tuple[Build, ...] = ()
    grade: bool = False


def replaced(sources: Sources, path: str, *edits: tuple[str, str]) -> Sources:
    """`path` with each (old, new) applied. Raises LookupError unless `old` stands there once."""
    text = sources[path]
    for old, new in edits:
        if text.count(old) != 1:
            raise LookupError(f"{path} has {text.count(old)} times: {old!r}")
        text = text.replace(old, new)
    return {path: text}


_RUN = "        for index, layer in enumerate(self.layers):\n"
_LINEAR = "    return F.linear(x, weight)\n"
_LOGITS = "        return linear(normed, self.output).float()\n"
_ROTARY = (
    "    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)\n"
    "    return x * cos + turned * sin\n"
)
_PLAN = "        plan = Plan()\n"
_STEP = "            plan = self.scheduler.plan()\n"
_NORM = "    return F.rms_norm(x, (x.shape[-1],), weight, eps)\n"
_NOTE = "            # {n}\n"
_FINISH = "        elif sequence.outputs == request.max_tokens:\n"


def slower_layers(sources: Sources, times: int) -> Sources:
    """Compute the first `times` layers' norms and query projections twice."""
    extra = (
        f"        for layer in self.layers[:{times}]:\n"
        "            linear(rms_norm(x, layer.attention_norm, self.config.norm_eps), layer.gate)\n"
    )
    return replaced(sources, "slim/model.py", (_RUN, extra + _RUN))


def slower_rows(sources: Sources, rows: int) -> Sources:
    """Compute `rows` rows of the layers' gates once more: what it costs goes with all the rest."""
    extra = (
        "        whole = len(self.layers[0].gate)\n"
        f"        for at in range(0, {rows}, whole):\n"
        "            layer = self.layers[at // whole % len(self.layers)]\n"
        f"            linear(x, layer.gate[: {rows} - at])\n"
    )
    return replaced(sources, "slim/model.py", (_RUN, extra + _RUN))


def busy_scheduler(sources: Sources, rounds: int) -> Sources:
    """Spend `rounds` thousand additions in every step's plan."""
    extra = f"        sum(range({rounds} * 1000))\n"
    return replaced(sources, "slim/scheduler.py", (_PLAN, extra + _PLAN))


def neutral_plan(sources: Sources, number: int) -> Sources:
    """A scheduler change that does nothing of note."""
    return replaced(sources, "slim/scheduler.py", (_PLAN, f"        _unused = {number}\n" + _PLAN))


def vector_linear(sources: Sources, number: int) -> Sources:
    """Matrix-vector products for single rows."""
    new = f"    if x.shape[0] == 1:  # {number}\n        return torch.mv(weight, x[0])[None]\n"
    return replaced(sources, "slim/layers.py", (_LINEAR, new + _LINEAR))


def rolled_rotary(sources: Sources, number: int) -> Sources:
    """Write the rotation's two halves in place of joining them first."""
    new = (
        f"    out = x * cos  # {number}\n"
        "    out[..., :half] -= x[..., half:] * sin[..., :half]\n"
        "    out[..., half:] += x[..., :half] * sin[..., half:]\n"
        "    return out\n"
    )
    return replaced(sources, "slim/layers.py", (_ROTARY, new))


def full_precision_norm(sources: Sources, number: int) -> Sources:
    """Norms in float32, rounded once."""
    new = (
        f"    wide = x.float()  # {number}\n"
        "    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)\n"
        "    return (wide * scale).to(x.dtype) * weight\n"
    )
    return replaced(sources, "slim/layers.py", (_NORM, new))


def module_constant(sources: Sources, number: int) -> Sources:
    """A module-level statement: the warm rung."""
    old = "Attention = Callable"
    return replaced(
        sources, "slim/model.py", (old, f"LAYOUT_VERSION = {number}\nLAYOUT_VERSION += 1\n" + old)
    )


def decorated_linear(sources: Sources, number: int) -> Sources:
    """A decorator on a hot function, with a graded cost: module level, so warm."""
    old = "def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:\n"
    wrapper = (
        "def counted(function):  # type: ignore[no-untyped-def]\n"
        '    """Spend a little before each call."""\n'
        "    def inner(*args):  # type: ignore[no-untyped-def]\n"
        f"        sum(range({number} * 100))\n"
        "        return function(*args)\n"
        "    return inner\n\n\n@counted\n"
    )
    return replaced(sources, "slim/layers.py", (old, wrapper + old))


_NORM_C = """
/* Root-mean-square norm of one row of bfloat16, accumulated in float. */
#include <math.h>
#include <stdint.h>
#include <string.h>
static float wide(uint16_t v) {
    uint32_t b = (uint32_t)v << 16; float f; memcpy(&f, &b, 4); return f;
}
static uint16_t narrow(float f) {
    uint32_t b; memcpy(&b, &f, 4); return (b + 0x7fff + ((b >> 16) & 1)) >> 16;
}
int norm_version(void) { return VERSION; }
void rms_norm_row(const uint16_t *x, const uint16_t *w, uint16_t *out, int n, float eps) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) { float v = wide(x[i]); sum += v * v; }
    float scale = 1.0f / sqrtf(sum / (float)n + eps);
    for (int i = 0; i < n; i++) out[i] = narrow(wide(narrow(wide(x[i]) * scale)) * wide(w[i]));
}
"""


def norm_kernel(sources: Sources, number: int) -> tuple[Sources, tuple[Build, ...]]:
    """rms_norm of single bfloat16 rows in C."""
    new = (
        "    if x.shape[0] == 1 and x.dtype == torch.bfloat16:\n"
        "        out = torch.empty_like(x)\n"
        "        _norm_row()(\n"
        "            x.contiguous().data_ptr(), weight.data_ptr(), out.data_ptr(),\n"
        "            x.shape[-1], eps,\n"
        "        )\n"
        "        return out\n"
    )
    helper = (
        "\n\n@functools.cache\n"
        "def _norm_row() -> ctypes._CFuncPtr:\n"
        '    """The kernel, with its signature."""\n'
        '    function = library("norm_row").rms_norm_row\n'
        "    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int, ctypes.c_float]\n"
        "    function.restype = None\n"
        "    return function\n"
    )
    files = replaced(
        sources,
        "slim/layers.py",
        (
            "import torch\nimport torch.nn.functional as F\n",
            "import ctypes\nimport functools\n\n"
            "import torch\nimport torch.nn.functional as F\n\nfrom .native import library\n",
        ),
        (_NORM, new + _NORM),
    )
    files["slim/layers.py"] += helper
    files["slim/csrc/norm_row.c"] = _NORM_C.replace("VERSION", str(number))
    flags = ("-O3", "-march=native", "-ffast-math")
    return files, (Build("norm_row", ("slim/csrc/norm_row.c",), flags),)


# What must not win: label, path, the line it replaces, and what with ({n}: the round).
_SABOTAGE = (
    (
        "second-best token",
        "slim/model.py",
        _LOGITS,
        "        scores = linear(normed, self.output).float()  # {n}\n"
        "        scores[scores == scores.amax(-1, keepdim=True)] = -1e9\n"
        "        return scores\n",
    ),
    ("no last layer", "slim/model.py", _RUN, _RUN.replace("layers)", "layers[:-1])") + _NOTE),
    ("not a number", "slim/model.py", _LOGITS, _LOGITS.rstrip() + " * float('nan')  # {n}\n"),
    (
        "one token fewer",
        "slim/engine.py",
        _FINISH,
        "        elif sequence.outputs == request.max_tokens - 1:  # {n}\n",
    ),
    ("raises", "slim/engine.py", _STEP, _STEP + "            raise RuntimeError('no luck {n}')\n"),
    ("exits", "slim/engine.py", _STEP, _STEP + "            __import__('os')._exit({n} % 100)\n"),
    (
        "reads address 0",
        "slim/engine.py",
        _STEP,
        _STEP + "            __import__('ctypes').string_at(0)  # {n}\n",
    ),
    ("does not parse", "slim/scheduler.py", _PLAN, _PLAN + "        return {n} {n}\n"),
)
_UNUSED = '''"""Not called by anything."""


def unused() -> int:
    """Return a number."""
    return {n}
'''
HANG_EVERY = 5  # rounds; a hang costs the whole of the plan's time limit


def bad(sources: Sources, number: int) -> list[Entry]:
    """Everything that must not win, a different text for each number."""
    entries = [
        Entry(
            f"{label} {number}",
            "bad",
            replaced(sources, path, (old, new.replace("{n}", str(number)))),
        )
        for label, path, old, new in _SABOTAGE
    ]
    unused = {"slim/extra.py": _UNUSED.replace("{n}", str(number))}
    return [*entries, Entry(f"never runs {number}", "bad", unused)]


def hang(sources: Sources, number: int) -> Entry:
    """A step that never ends."""
    loop = f"            while {number}:\n                pass\n"
    return Entry(
        f"hangs {number}", "bad", replaced(sources, "slim/engine.py", (_STEP, _STEP + loop))
    )


def knob_sets(number: int) -> list[dict[str, Scalar]]:
    """Five settings, other ones for each number; most leave batch-1 decode as it is, some don't."""
    chunk = 64 + number
    return [
        {"prefill_chunk": chunk},
        {"threads": 1, "prefill_chunk": chunk},
        {"max_num_seqs": 8, "prefill_chunk": chunk},
        {"onednn_min_rows": 1, "prefill_chunk": chunk},
        {"block_size": (8, 32, 64)[number % 3], "cache_tokens": 8192 + 64 * number},
    ]


_BIG = ("c-matvec", "fused-layers", "fused-step", "grid4-weights")  # kernels with much to gain


def graded(sources: Sources) -> list[Entry]:
    """The entries on which the tiers are compared: correct, and spread over a range of effects."""

    def function(label: str, files: Sources) -> Entry:
        return Entry(label, "function", files, grade=True)

    entries = [
        function(f"gate of {n} layers twice", slower_layers(sources, n)) for n in (3, 8, 15, 30)
    ]
    entries += [
        function(f"scheduler spends {n}", busy_scheduler(sources, n)) for n in (25, 60, 300, 700)
    ]
    entries += [
        function("rotary in place", rolled_rotary(sources, 0)),
        function("norm in float32", full_precision_norm(sources, 0)),
        function("neutral", neutral_plan(sources, 0)),
        Entry("decorated linear 4", "module", decorated_linear(sources, 4), grade=True),
        Entry("decorated linear 40", "module", decorated_linear(sources, 40), grade=True),
        Entry("one thread", "knob", knobs={"threads": 1}, grade=True),
        Entry("oneDNN for one row", "knob", knobs={"onednn_min_rows": 1}, grade=True),
    ]
    files, builds = norm_kernel(sources, 0)
    entries.append(Entry("norm in C", "kernel", files, builds=builds, grade=True))
    return entries + [_rewritten(sources, rewrite) for rewrite in REWRITES if rewrite.name in _BIG]


def _rewritten(sources: Sources, rewrite: Rewrite) -> Entry:
    """A rewrite of the playbook at its best guess."""
    change = rewrite.rewrite(sources, rewrite.best_guess())
    label = rewrite.label(rewrite.best_guess())
    return Entry(label, "kernel", change.files, change.knobs, change.builds, grade=True)


def _honest(sources: Sources, n: int) -> list[Entry]:
    """One round's correct candidates but for the knobs."""
    files, builds = norm_kernel(sources, n)
    texts = {
        f"gate of layers twice {n}": slower_layers(sources, 3 + n % 25) | neutral_plan(sources, n),
        f"scheduler spends {n}": busy_scheduler(sources, 40 + n),
        f"neutral {n}": neutral_plan(sources, n),
        f"matrix-vector {n}": vector_linear(sources, n),
        f"rotary in place {n}": rolled_rotary(sources, n),
        f"norm in float32 {n}": full_precision_norm(sources, n),
        f"gate and scheduler {n}": slower_layers(sources, 10) | busy_scheduler(sources, 100 + n),
    }
    decorated = decorated_linear(sources, n % 40) | neutral_plan(sources, n)
    return [
        *(Entry(label, "function", changed) for label, changed in texts.items()),
        Entry(f"module constant {n}", "module", module_constant(sources, n)),
        Entry(f"decorated linear {n}", "module", decorated),
        Entry(f"norm in C {n}", "kernel", files, builds=builds),
    ]


def mix(sources: Sources, seed: int = 1) -> Iterator[Entry]:
    """The endless mix: rounds of 20 (10 sources, 5 knobs, 5 bad), shuffled by the seed."""
    chance = random.Random(seed)
    for number in itertools.count(1):
        entries = _honest(sources, number)
        entries += [Entry(f"knobs {k}", "knob", knobs=k) for k in knob_sets(number)]
        entries += chance.sample(bad(sources, number), 5)
        if number % HANG_EVERY == 0:
            entries[-1] = hang(sources, number)
        chance.shuffle(entries)
        yield from entries
