"""All rewrites, in the order they are tried: largest expected gain on decoding first."""

from __future__ import annotations

from proposer.playbook.fused import FUSED_LAYERS, FUSED_STEP, GRID4, INT8
from proposer.playbook.memory import MEMORY
from proposer.playbook.operations import OPERATIONS
from proposer.playbook.projections import PROJECTIONS
from proposer.playbook.rewrite import Rewrite
from proposer.playbook.stepping import STEPPING

_BY_NAME = {
    rewrite.name: rewrite
    for rewrite in (
        FUSED_STEP,
        FUSED_LAYERS,
        GRID4,
        INT8,
        *OPERATIONS,
        *PROJECTIONS,
        *MEMORY,
        *STEPPING,
    )
}
_FIRST = ("fused-step", "grid4-weights", "c-matvec", "fused-layers", "packed-weights", "huge-pages")

# Preparing takes longer than a trial allows on most machines.
_LAST = ("compiled-layers",)

REWRITES: tuple[Rewrite, ...] = (
    *(_BY_NAME[name] for name in _FIRST),
    *(rewrite for name, rewrite in _BY_NAME.items() if name not in _FIRST + _LAST),
    *(_BY_NAME[name] for name in _LAST),
)
