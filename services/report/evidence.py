"""The numbers behind a verdict, from its evidence blob."""

import math
from collections import Counter
from dataclasses import dataclass

from protos import codec
from protos.metrics import pair_ratio
from protos.trial import BlockSample, Evidence, Verdict
from services.blobs import Blobs
from services.errors import BlobError


@dataclass(frozen=True)
class PairRatio:
    """One pair: B/A, > 1 is better whatever the metric's direction. `void` pairs don't count."""

    pair: int
    start: int
    ratio: float | None
    void: str | None


def read_evidence(blobs: Blobs, verdict: Verdict) -> Evidence | None:
    """A verdict's evidence; None when the blob has expired or is damaged."""
    try:
        return codec.decode(blobs.get(verdict.evidence), Evidence)
    except (BlobError, codec.UndecodableError):
        return None


def pair_ratios(evidence: Evidence) -> list[PairRatio]:
    """Every pair of the evidence, in the order in which they ran, void ones included."""
    sides: dict[int, dict[str, BlockSample]] = {}
    for block in evidence.blocks:
        sides.setdefault(block.pair, {})[block.side] = block
    return [_pair(evidence, pair, both) for pair, both in sides.items() if len(both) == 2]


def _pair(evidence: Evidence, pair: int, both: dict[str, BlockSample]) -> PairRatio:
    a, b = both["A"], both["B"]
    found = pair_ratio(evidence.lease.objective.metric, a, b)
    return PairRatio(pair, a.start, None if found is None else math.exp(found), a.void or b.void)


def numbers(evidence: Evidence) -> list[str]:
    """The evidence in a few lines."""
    ratios = pair_ratios(evidence)
    counted = sorted(p.ratio for p in ratios if p.ratio is not None and p.void is None)
    lines = [f"host {evidence.host}, attempt {evidence.attempt}, rung {evidence.rung}"]
    if counted:
        lines.append(
            f"pair ratios: lowest {counted[0]:.3f}, median {counted[len(counted) // 2]:.3f}, "
            f"highest {counted[-1]:.3f}, {len(counted)} counted, {len(ratios) - len(counted)} void"
        )
    void = Counter(block.void for block in evidence.blocks if block.void is not None)
    lines += [f"void: {count} blocks, {reason}" for reason, count in void.most_common(3)]
    if evidence.phases_s:
        phases = ", ".join(f"{name} {value:.3f} s" for name, value in evidence.phases_s.items())
        lines.append(f"time: {phases}")
    if evidence.failure:
        lines.append(f"failed in {evidence.failure}: {evidence.detail}")
    if evidence.engaged is not None:
        said = "the changed code ran" if evidence.engaged else "the changed code never ran"
        lines.append(f"engagement: {said} {evidence.engaged_detail}".rstrip())
    return lines + _grading(evidence)


def _grading(evidence: Evidence) -> list[str]:
    gaps = [gap for grade in evidence.grades for gap in grade.gaps]
    if not gaps:
        return []
    same = sum(grade.same_as_a for grade in evidence.grades)
    noise = "" if evidence.noise_gap is None else f" (side A's own: {evidence.noise_gap:.4f})"
    return [
        f"graded {_graded(len(evidence.grades), same)}, {len(gaps)} tokens: "
        f"largest logit gap {max(gaps):.4f}{noise}"
    ]


def _graded(count: int, same: int) -> str:
    """What was graded. Outputs that differ go first: of those that don't, one is enough."""
    if same == count:
        return f"{count} outputs, each the same as side A's"
    return f"{count - same} outputs that differ from side A's"
