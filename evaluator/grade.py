"""Output classes, from the float32 reference's scores of the candidate's own timed outputs. Pure.

The reference never moves, so small losses can't add up unseen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from protos.trial import BlockSample, Grade

OutputClass = Literal["bitwise", "equivalent", "quality", "incorrect"]
LOOSENESS = {"bitwise": 0, "equivalent": 1, "quality": 2}

# The noise floor between two precisions of one model, in logits. bf16 keeps 8 bits: a logit near
# 20 is rounded by up to 0.06, and errors of 30 layers add up to a few tenths; a token that bf16
# prefers lies that close to float32's best. Measured with SmolLM2-135M in bf16 against float32 on
# 300 greedy tokens of `single`: 14 tokens had a gap, the largest 0.22, the mean of all 0.002.
# The floor rises with what side A's own outputs show on the same host, up to CEILING_GAP: an
# incumbent can't drag its successors down step by step.
DEFAULT_GAP = 0.5
CEILING_GAP = 1.0
MEAN_GAP = 0.03  # over all tokens said; most have gap 0. One near tie passes however few they are
# Beyond these nobody's rounding or quantisation is at work: something else was computed.
INCORRECT_GAP = 8.0
INCORRECT_MEAN_GAP = 1.0
MEAN_TOKENS = 8  # one bad token among fewer graded ones is not yet another model
CONSTANT_TOKENS = 12  # this many outputs all one token, where side A says otherwise, is a constant


@dataclass(frozen=True)
class Said:
    """Side B's outputs in the counted pairs: how many differ from side A's, and all tokens."""

    differing: int
    tokens: int


@dataclass(frozen=True)
class Graded:
    """`tokens` were scored; `reason` says in one line why the class is what it is."""

    output_class: OutputClass
    reason: str
    tokens: int = 0
    largest_gap: float = 0.0
    mean_gap: float = 0.0


def noise_floor(noise_gap: float | None) -> float:
    """Largest gap (logits) that counts as rounding; `noise_gap` is what side A showed."""
    return min(CEILING_GAP, max(DEFAULT_GAP, noise_gap or 0.0))


def grade(grades: Sequence[Grade], noise_gap: float | None, said: Said) -> Graded:
    """The class of side B's outputs. Raises ValueError when none is graded.

    Outputs that differ from side A's are graded first, so the mean over what is graded would be
    the mean over the worst: it is taken over all tokens that B said, the differing outputs that
    were not graded counted like those that were.
    """
    gaps = [gap for item in grades for gap in item.gaps]
    if not gaps:
        raise ValueError("no output was graded")
    largest, plain_mean = max(gaps), sum(gaps) / max(MEAN_TOKENS, len(gaps))
    graded_differing = sum(not item.same_as_a for item in grades)
    scale = max(1.0, said.differing / graded_differing) if graded_differing else 1.0
    mean = sum(gaps) * scale / max(said.tokens, len(gaps))

    def graded(output_class: OutputClass, reason: str) -> Graded:
        return Graded(output_class, reason, len(gaps), largest, mean)

    if min(gaps) < -1e-3:
        return graded("incorrect", f"a gap of {min(gaps):.3f} logits can't be: the score is broken")
    if largest > INCORRECT_GAP or plain_mean > INCORRECT_MEAN_GAP:
        return graded(
            "incorrect",
            f"outputs are not the model's: largest gap to the float32 reference {largest:.2f} "
            f"logits (allowed {INCORRECT_GAP}), mean {plain_mean:.3f} "
            f"(allowed {INCORRECT_MEAN_GAP})",
        )
    if said.differing == 0:
        return graded("bitwise", "every output has the same tokens as side A's")
    floor = noise_floor(noise_gap)
    allowed = max(MEAN_GAP, floor / max(said.tokens, len(gaps)))
    figures = (
        f"largest gap {largest:.3f} logits (noise floor {floor:.3f}), "
        f"mean {mean:.4f} (allowed {allowed:.4f})"
    )
    if largest <= floor and mean <= allowed:
        return graded("equivalent", f"outputs differ within rounding: {figures}")
    return graded("quality", f"outputs differ beyond rounding: {figures}")


def constant_output(blocks: Sequence[BlockSample]) -> bool:
    """Whether side B says one and the same token everywhere, and side A doesn't."""
    said: dict[str, list[int]] = {"A": [], "B": []}
    for block in blocks:
        for item in block.requests:
            said[block.side].extend(item.tokens)
    return (
        len(said["B"]) >= CONSTANT_TOKENS and len(set(said["B"])) == 1 and len(set(said["A"])) > 1
    )


def repetition(blocks: Sequence[BlockSample], side: str) -> float | None:
    """Share of output tokens that end a 3-gram seen before in their own output; None: no 3-gram.

    Text that repeats itself makes speculation look better than it is on other traffic.
    """
    repeated = total = 0
    for block in blocks:
        for item in block.requests if block.side == side else ():
            seen: set[tuple[int, ...]] = set()
            for end in range(3, len(item.tokens) + 1):
                gram = item.tokens[end - 3 : end]
                repeated += gram in seen
                total += 1
                seen.add(gram)
    return repeated / total if total else None
