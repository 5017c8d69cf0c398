"""Raw samples against the script: is the evidence what its plan and script say it is? Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from evaluator.grade import Said
from protos.metrics import metric_value, pair_ratio, pair_units
from protos.stopping import Decision, decide
from protos.target import METRICS
from protos.trial import (
    BlockSample,
    Evidence,
    Grade,
    PairScript,
    RequestSample,
    Script,
    StopRule,
    Unit,
)

TURN_SLACK_NS = 1_000_000  # between a block's origin and its first turn


class EvidenceError(ValueError):
    """The evidence doesn't keep to its own plan or script: no verdict can stand on it."""


@dataclass(frozen=True)
class Pair:
    """The two blocks of one pair; `void` says why it doesn't count."""

    number: int
    start: int
    a: BlockSample
    b: BlockSample

    @property
    def void(self) -> str | None:
        return self.a.void or self.b.void


def pairs_of(blocks: Sequence[BlockSample], script: Script) -> list[Pair]:
    """The blocks as pairs, in order, each checked against the script. Raises EvidenceError."""
    pairs = []
    for number in range(len(blocks) // 2):
        if number >= len(script.pairs):
            raise EvidenceError(f"pair {number} isn't in the script ({len(script.pairs)} pairs)")
        pairs.append(_pair(number, blocks[2 * number : 2 * number + 2], script.pairs[number]))
    return pairs


def _pair(number: int, blocks: Sequence[BlockSample], script: PairScript) -> Pair:
    first, second = blocks
    if (first.pair, second.pair) != (number, number) or first.start != second.start:
        raise EvidenceError(f"block {2 * number} and the next are not pair {number}")
    if (first.position, second.position) != (0, 1) or first.side == second.side:
        raise EvidenceError(f"pair {number} has no first and second side")
    if first.side != script.first:
        raise EvidenceError(f"side {first.side} ran first in pair {number}, not {script.first}")
    for block in blocks:
        _check_requests(block, script)
        _check_turns(block)
    a, b = (first, second) if first.side == "A" else (second, first)
    return Pair(number, first.start, a, b)


def _check_requests(block: BlockSample, script: PairScript) -> None:
    known = {item.id for item in (*script.requests, *script.warm_up)}
    given = [item.id for item in (*block.requests, *block.warm_up)]
    if len(set(given)) != len(given) or not known.issuperset(given):
        raise EvidenceError(f"side {block.side} of pair {block.pair} has other requests")


def _check_turns(block: BlockSample) -> None:
    if not block.turn_ns and not block.turn_tokens:
        return
    where = f"side {block.side} of pair {block.pair}"
    if len(block.turn_ns) != len(block.turn_tokens):
        raise EvidenceError(f"the turns of {where} are torn")
    if sum(block.turn_tokens) != sum(len(item.tokens) for item in block.requests):
        raise EvidenceError(f"the turns of {where} have other tokens than its requests")
    if min(block.turn_ns) <= 0 or sum(block.turn_ns) + TURN_SLACK_NS < block.wall_ns:
        raise EvidenceError(f"the turns of {where} are shorter than its block")


def last_alone(blocks: Sequence[BlockSample], script: Script) -> str | None:
    """The fault of a last block of side B that has no partner; None: there is no such block.

    A host may stop at the first wrong output. Raises EvidenceError for any other odd block.
    """
    if len(blocks) % 2 == 0:
        return None
    block, number = blocks[-1], len(blocks) // 2
    if block.pair != number or number >= len(script.pairs):
        raise EvidenceError(f"the last block isn't of pair {number}")
    _check_requests(block, script.pairs[number])
    fault = output_fault(block, script.pairs[number])
    if block.side != "B" or fault is None:
        raise EvidenceError(f"pair {number} has only side {block.side}")
    return fault


def output_fault(block: BlockSample, script: PairScript) -> str | None:
    """Why the outputs of a block are not what was asked for; None: they are.

    Every output must have exactly the tokens that were asked for, each with its time.
    """
    given = {item.id: item for item in block.requests}
    for asked in script.requests:
        item = given.get(asked.id)
        if item is None:
            return f"request {asked.id} of pair {block.pair} was never answered"
        fault = _request_fault(item, asked.max_tokens, block.wall_ns)
        if fault:
            return f"request {asked.id} of pair {block.pair} {fault}"
    untimed = {item.id: item for item in block.warm_up}
    for asked in script.warm_up:
        item = untimed.get(asked.id)
        fault = "was never answered" if item is None else _count_fault(item, asked.max_tokens)
        if fault:
            return f"untimed request {asked.id} of pair {block.pair} {fault}"
    return None


def _request_fault(item: RequestSample, asked: int, wall_ns: int) -> str | None:
    fault = _count_fault(item, asked)
    if fault:
        return fault
    times = (item.sent_ns, *item.token_ns)
    if any(late < early for early, late in pairwise(times)):
        return "has times that run backwards"
    if times[-1] > wall_ns:
        return "ends after its block"
    return None


def _count_fault(item: RequestSample, asked: int) -> str | None:
    if item.error is not None:
        return f"failed: {item.error}"
    if len(item.tokens) != asked:
        return f"gave {len(item.tokens)} tokens of {asked}"
    if item.finish is None:
        return "was never finished"
    if len(item.token_ns) != len(item.tokens):
        return f"has {len(item.token_ns)} times for {len(item.tokens)} tokens"
    if any(token < 0 for token in item.tokens):
        return "gave a token id below 0"
    return None


def log_ratio(metric: str, pair: Pair) -> float:
    """log(B/A), turned so that positive is better. Raises EvidenceError where a side has none."""
    ratio = pair_ratio(metric, pair.a, pair.b)
    if ratio is None:
        raise EvidenceError(f"{metric} isn't measured in pair {pair.number}")
    return ratio


def looks_of(metric: str, pairs: Sequence[Pair], unit: Unit, cold: bool) -> list[list[float]]:
    """What each look of the stopping rule added: a counted pair's units, or a cold start's mean."""
    counted = [pair for pair in pairs if pair.void is None]
    if not cold:
        return [_units(metric, pair, unit) for pair in counted]
    starts: dict[int, list[float]] = {}
    for pair in counted:
        starts.setdefault(pair.start, []).append(log_ratio(metric, pair))
    return [[sum(ratios) / len(ratios)] for ratios in starts.values()]


def _units(metric: str, pair: Pair, unit: Unit) -> list[float]:
    try:
        found = pair_units(metric, pair.a, pair.b, unit)
    except ValueError as error:
        raise EvidenceError(str(error)) from error
    if found is None:
        raise EvidenceError(f"{metric} isn't measured in pair {pair.number}")
    return found


def stop_of(looks: Sequence[Sequence[float]], rule: StopRule, exhausted: bool) -> Decision:
    """What the rule says, re-derived; the evidence must end exactly where it says so.

    `exhausted`: every pair of the script has run. Raises EvidenceError when the host stopped too
    early or went on after a decision.
    """
    units: list[float] = []
    for number, look in enumerate(looks[:-1], start=1):
        units += look
        early = decide(units, rule)
        if early != "continue":
            raise EvidenceError(
                f"the rule said {early} at look {number}, the evidence has {len(looks)}"
            )
    units += looks[-1] if looks else []
    word = decide(units, rule)
    if word == "continue":
        if not exhausted:
            raise EvidenceError(f"the evidence stops after {len(units)} units, the rule goes on")
        return "inconclusive"
    return word


def pooled(blocks: Sequence[BlockSample], side: str) -> BlockSample:
    """All counted blocks of a side as one: requests together, wall time added up."""
    counted = [block for block in blocks if block.side == side and block.void is None]
    return BlockSample(
        pair=0,
        start=0,
        side="A" if side == "A" else "B",
        position=0,
        wall_ns=sum(block.wall_ns for block in counted),
        requests=tuple(item for block in counted for item in block.requests),
    )


def side_metrics(block: BlockSample) -> dict[str, float]:
    """Every metric that the samples give."""
    found = {name: metric_value(name, block) for name in METRICS}
    return {name: value for name, value in found.items() if value is not None}


def said_in(block: BlockSample) -> tuple[RequestSample, ...]:
    """All outputs of a block, those of the untimed requests before it included."""
    return (*block.requests, *block.warm_up)


def said_of(pairs: Sequence[Pair]) -> Said:
    """What side B said in these pairs, beside what side A said."""
    differing = tokens = 0
    for pair in pairs:
        by_a = {item.id: item.tokens for item in said_in(pair.a)}
        for item in said_in(pair.b):
            differing += item.tokens != by_a.get(item.id)
            tokens += len(item.tokens)
    return Said(differing, tokens)


def check_grades(grades: Sequence[Grade], pairs: Sequence[Pair], said_all: Said) -> None:
    """Each grade must be of an output of these pairs, and differing ones must be among them.

    Raises EvidenceError.
    """
    if said_all.differing and all(item.same_as_a for item in grades):
        raise EvidenceError("outputs that differ from side A's were not graded")
    by_number = {pair.number: pair for pair in pairs}
    for item in grades:
        pair = by_number.get(item.pair)
        said = (
            []
            if pair is None
            else [
                [r.tokens for r in said_in(block) if r.id == item.request]
                for block in (pair.a, pair.b)
            ]
        )
        if len(said) != 2 or not said[0] or not said[1]:
            raise EvidenceError(f"request {item.request} of pair {item.pair} was never timed")
        if len(item.gaps) != len(said[1][0]) or len(item.logprobs) != len(item.gaps):
            raise EvidenceError(f"the grade of request {item.request}, pair {item.pair} is torn")
        if item.same_as_a != (said[0] == said[1]):
            raise EvidenceError(f"the grade of request {item.request}, pair {item.pair} is wrong")


def check_seed(evidence: Evidence, script: Script, commitment: str) -> None:
    """The seed is the one committed to before the patch was loaded. Raises EvidenceError."""
    if script.trial != evidence.trial:
        raise EvidenceError(f"the script is of trial {script.trial}")
    if evidence.commitment != commitment:
        raise EvidenceError("the revealed seed isn't the one committed to")
