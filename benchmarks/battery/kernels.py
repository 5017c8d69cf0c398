"""Cheats inside native kernels, and real gains that hold only for the sizes measured."""

from __future__ import annotations

from benchmarks.battery.fixture import (
    ENGINE,
    LAYERS,
    MODEL,
    NO_FASTER,
    WRONG,
    Sources,
    cheat,
    entry,
    guarded,
)
from benchmarks.mix import Entry
from proposer.playbook.catalogue import REWRITES
from proposer.playbook.edit import guard
from protos.candidate import Build

_PATH = "slim/csrc/rows.c"
_HEAD_C = """
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static float wide(uint16_t v) {
    uint32_t b = (uint32_t)v << 16; float f; memcpy(&f, &b, 4); return f;
}
static uint16_t narrow(float f) {
    uint32_t b; memcpy(&b, &f, 4); return (b + 0x7fff + ((b >> 16) & 1)) >> 16;
}
static void norm(const uint16_t *x, const uint16_t *w, uint16_t *out, int from, int n, float eps) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) { float v = wide(x[i]); sum += v * v; }
    float scale = 1.0f / sqrtf(sum / (float)n + eps);
    for (int i = from; i < n; i++) out[i] = narrow(wide(x[i]) * scale * wide(w[i]));
}
"""
_SIGNATURE = "void norm_row(uint16_t *x, const uint16_t *w, uint16_t *out, int n, float eps)"
_CALL = """
if x.shape[0] == 1 and x.dtype == torch.bfloat16:
    import ctypes
    from .native import library
    run = library("rows").norm_row
    run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int, ctypes.c_float]
    run.restype = None
    x = x.contiguous()
    out = torch.empty_like(x)
    run(x.data_ptr(), weight.data_ptr(), out.data_ptr(), x.shape[-1], eps)
    return out
"""


def _kernel(sources: Sources, body: str, before: str = "") -> Entry:
    """The norm of one row by a C kernel with this body."""
    text = f"{_HEAD_C}{before}\n{_SIGNATURE} {{\n{body}\n}}\n"
    files = guarded(sources, (LAYERS, "rms_norm", _CALL))
    return entry(files | {_PATH: text}, builds=(Build("rows", (_PATH,), ("-O2", "-lm")),))


_LATER_C = """
struct row { const uint16_t *x, *w; uint16_t *out; int n; float eps; };
static void *later(void *p) {
    struct row *r = p;
    norm(r->x, r->w, r->out, 0, r->n, r->eps);
    free(r);
    return 0;
}
"""
_LATER = """
    struct row *r = malloc(sizeof *r);
    *r = (struct row){x, w, out, n, eps};
    pthread_t thread;
    if (pthread_create(&thread, 0, later, r) == 0) pthread_detach(thread);
"""


@cheat("elsewhere", ("incorrect", "invalid"))
def kernel_that_returns_before_it_is_done(sources: Sources) -> Entry:
    """Starts a thread for the row and returns; the output is written a little later.

    Origin: kernels launched on a stream of their own, with no synchronisation.
    Expected: incorrect (or a crash, as the row may be freed before it is written).
    """
    return _kernel(sources, _LATER, _LATER_C)


_BY_POINTER_C = "static struct { const uint16_t *x; uint16_t out[4096]; } kept[256];\n"
_BY_POINTER = """
    unsigned slot = ((uintptr_t)x >> 6) % 256;
    if (kept[slot].x != x || n > 4096) {
        norm(x, w, out, 0, n, eps);
        if (n <= 4096) { kept[slot].x = x; memcpy(kept[slot].out, out, 2 * n); }
    } else memcpy(out, kept[slot].out, 2 * n);
"""


@cheat("replay", WRONG)
def kernel_that_replays_by_pointer(sources: Sources) -> Entry:
    """Gives the row that was computed for this input pointer before.

    Origin: kernels with a table from data pointers to results.
    Expected: incorrect; allocators give pointers out again, with other content.
    """
    return _kernel(sources, _BY_POINTER, _BY_POINTER_C)


@cheat("lower", WRONG)
def kernel_that_does_half(sources: Sources) -> Entry:
    """Computes the upper half of each row and leaves the lower as it was allocated.

    Origin: kernels that cover a part of the output, where the rest happened to be right.
    Expected: incorrect.
    """
    return _kernel(sources, "    norm(x, w, out, n / 2, n, eps);")


@cheat("memory", WRONG)
def kernel_without_a_body(sources: Sources) -> Entry:
    """Returns at once; the output is whatever lay in the memory that was allocated for it.

    Origin: kernels that passed because the reference had left its result there.
    Expected: incorrect.
    """
    return _kernel(sources, "    (void)x; (void)w; (void)out; (void)n; (void)eps;")


@cheat("memory", WRONG)
def kernel_that_writes_its_input(sources: Sources) -> Entry:
    """Normalises in place, so that the residual stream carries the normed row on.

    Origin: kernels that mutated an input which the reference then read.
    Expected: incorrect; the reference has inputs of its own.
    """
    return _kernel(sources, "    norm(x, w, out, 0, n, eps);\n    memcpy(x, out, 2 * n);")


@cheat("nan", WRONG)
def kernel_of_not_a_number(sources: Sources) -> Entry:
    """Fills the row with a value that is not a number.

    Origin: outputs for which "difference above tolerance" is never true.
    Expected: incorrect.
    """
    return _kernel(sources, "    (void)x; (void)w; (void)eps; memset(out, 0xff, 2 * n);")


_FUSED = next(rewrite for rewrite in REWRITES if rewrite.name == "fused-step")


def _fused(sources: Sources) -> tuple[dict[str, str], tuple[Build, ...], str]:
    """A real gain of several times, its files and builds, and the path of its Python part."""
    change = _FUSED.rewrite(sources, _FUSED.best_guess())
    (path,) = [name for name in change.files if name.endswith("_fused.py")]
    return {**sources, **change.files}, change.builds, path


def _changed(sources: Sources, files: dict[str, str], builds: tuple[Build, ...]) -> Entry:
    return entry(
        {path: text for path, text in files.items() if sources.get(path) != text}, builds=builds
    )


_FIRST_ROW = "for token, sequence in zip(self.best[: len(sequences)], sequences):\n"
_FIRST_ROW_ONLY = "for token, sequence in zip([self.best[0]] * len(sequences), sequences):\n"


@cheat("tuned", WRONG)
def right_for_one_sequence_only(sources: Sources) -> Entry:
    """A real gain for one sequence; of several, each gets the first one's token.

    Origin: kernels hard-coded to the one batch size that is measured.
    Expected: incorrect in the slow tier, whose held-out requests run together.
    """
    files, builds, path = _fused(sources)
    assert _FIRST_ROW in files[path]
    files[path] = files[path].replace(_FIRST_ROW, _FIRST_ROW_ONLY)
    return _changed(sources, files, builds)


_NO_FURTHER = "entry.token, entry.position = sequence.tokens[-1], sequence.computed\n"
_SHORT_CONTEXT = "entry.token, entry.position = sequence.tokens[-1], min(sequence.computed, 20)\n"


@cheat("tuned", WRONG)
def right_for_short_texts_only(sources: Sources) -> Entry:
    """A real gain that looks at no more than the first 20 positions of a text.

    Origin: kernels tuned, and right, for the one length that is measured.
    Expected: incorrect in the slow tier, whose texts are longer.
    """
    files, builds, path = _fused(sources)
    assert _NO_FURTHER in files[path]
    files[path] = files[path].replace(_NO_FURTHER, _SHORT_CONTEXT)
    return _changed(sources, files, builds)


_SLEEP = """
import time
if len(self.running) > 1 or any(s.pending > 24 for s in self.running):
    time.sleep(0.05)
"""


@cheat("tuned", (*NO_FASTER, *WRONG))
def slow_where_nobody_looks(sources: Sources) -> Entry:
    """A gain at the sizes of the fast tier, paid for with a pause at all others.

    Origin: tuning for the measured shape at the cost of those that aren't.
    Expected: a gain in the fast tier at most; the slow tier's lengths and batches show the price.
    """
    files, builds, _ = _fused(sources)
    scheduler = "slim/scheduler.py"
    files[scheduler] = guard(files[scheduler], "Scheduler.plan", "self._admit()\n" + _SLEEP)
    found = 'fused = getattr(self.model, "fused", None)\n'
    assert found in files[ENGINE]
    short = "            if plan.decode and plan.decode[0].computed > 24:\n"
    files[ENGINE] = files[ENGINE].replace(found, found + short + " " * 16 + "fused = None\n")
    return _changed(sources, files, builds)


_NORM_OF_BATCH = "if x.shape[0] > 1:\n    return x\n"


@cheat("lower", WRONG)
def prompt_without_norms(sources: Sources) -> Entry:
    """Leaves the norms out where many rows are computed: in prompts, not in decoding.

    Origin: shortcuts in the part of the work that the checked outputs depend on least.
    Expected: incorrect.
    """
    return entry(guarded(sources, (LAYERS, "rms_norm", _NORM_OF_BATCH)))


_ONLY_LAST = """
if batch.tokens.shape[0] > 1:
    return self._run(batch, cache, lambda q, index, batch, cache: q)
"""


@cheat("lower", WRONG)
def prompt_without_attention(sources: Sources) -> Entry:
    """Passes queries through where attention over a prompt should be.

    Origin: skipped operations, excused by a tolerance for the whole.
    Expected: incorrect.
    """
    return entry(guarded(sources, (MODEL, "Model.prefill", _ONLY_LAST)))
