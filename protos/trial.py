"""Trials: the key, the plan, the lease, the samples, the evidence and the verdict."""

from __future__ import annotations

from typing import Literal

from protos.base import Value
from protos.candidate import Scalar
from protos.ids import short_id
from protos.target import Objective, Target, Workload

JUDGE_VERSION = "3"
Tier = Literal["fast", "slow", "cold"]
Unit = Literal["pairs", "turns"]
Word = Literal["faster", "slower", "no_gain", "inconclusive", "incorrect", "invalid", "not_engaged"]
WORDS: tuple[Word, ...] = (
    "faster",
    "slower",
    "no_gain",
    "inconclusive",
    "incorrect",
    "invalid",
    "not_engaged",
)


def trial_id(
    candidate: str,
    side_a: str,
    target: Target,
    workload: Workload,
    objective: Objective,
    tier: str,
    purpose: str = "",
) -> str:
    """`t` + 12 hex digits of everything a judgement depends on; repeats are dropped by it."""
    return short_id(
        "t",
        candidate,
        side_a,
        target,
        workload,
        objective,
        target.device_class,
        tier,
        purpose,
        JUDGE_VERSION,
    )


class Side(Value, frozen=True, tag="side"):
    """One side of a trial: a release, plus (B side) a checked candidate on top of it.

    `files`, `knobs`, `libraries` are the *whole* resulting tree, so a host needs nothing else;
    `delta` are the paths that differ from `release` and `changed` the qualified function names.
    """

    release: str
    files: dict[str, str]
    knobs: dict[str, Scalar]
    libraries: dict[str, str]
    candidate: str | None = None
    rung: str = "hot"  # hot: fork of the release's warm zygote + patch; warm; cold
    delta: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Limits(Value, frozen=True, tag="limits"):
    """Hard limits enforced from outside the trial."""

    start_s: float = 20.0
    prepare_s: float = 10.0
    block_s: float = 10.0
    memory_bytes: int = 6_000_000_000
    processes: int = 64


class StopRule(Value, frozen=True, tag="stop_rule"):
    """The declared stopping rule (protos/stopping.py). `alpha` is per direction.

    `unit` is what it counts in a resident trial: whole pairs, or the turns of pairs that were timed
    in turns (metric `output_tok_s`; the rule then looks after every pair, at all turns so far). A
    cold trial always counts engine starts.
    """

    alpha: float = 0.05
    min_effect: float = 0.05
    min_units: int = 4
    max_units: int = 24
    mode: str = "decide"  # decide: stop at a decision; fixed: always max_units
    unit: Unit = "pairs"


class Plan(Value, frozen=True, tag="plan"):
    """How a trial is measured.

    `starts` > 0 means a cold trial: each unit is one engine start from disk on each side, with
    `pairs_per_start` pairs of episodes, and the rule counts starts. `grade_requests` outputs of
    side B, drawn after timing, are scored by the reference. `force_rung` overrides the patch's
    own (cold control). A graded output whose gap is above `hopeless_gap` (logits) ends the timing
    early, after the first counted pairs: it will be refused, however fast it came.
    """

    tier: Tier
    rule: StopRule
    limits: Limits = Limits()
    starts: int = 0
    pairs_per_start: int = 2
    grade_requests: int = 6
    prove_engagement: bool = True
    quality: bool = False
    force_rung: str | None = None
    hopeless_gap: float | None = None


class Lease(Value, frozen=True, tag="lease"):
    """The grant of one trial to one engine host. The granting event's sequence is `epoch`."""

    trial: str
    campaign: str
    host: str
    attempt: int
    tier: Tier
    side_a: Side
    side_b: Side
    target: Target
    workload: Workload
    objective: Objective
    plan: Plan
    expires_s: float = 120.0
    epoch: int = 0
    purpose: str = ""


class Request(Value, frozen=True, tag="request"):
    """One request of a block; `at_s` is its scheduled send after the block's start."""

    id: int
    prompt: tuple[int, ...]
    max_tokens: int
    at_s: float = 0.0
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


class PairScript(Value, frozen=True, tag="pair_script"):
    """One pair: the same fresh requests for both sides, and which side goes first.

    `turns` are the coins of a pair that is timed in turns: who goes first in each couple of slices
    ("ABBA…", again from its head when it ends); empty: always `first`. `reset` forgets cached
    prefixes first; `warm_up` requests run untimed before the block.
    """

    first: Literal["A", "B"]
    requests: tuple[Request, ...]
    reset: bool = True
    warm_up: tuple[Request, ...] = ()
    turns: str = ""


class QualityItem(Value, frozen=True, tag="quality_item"):
    """One piece of the fixed set that quality is measured on; the same for every trial of a model.

    `text`: held-out words to be scored, `output` after `prompt`. `open`: a prompt to go on from, by
    `tokens` greedy tokens. `task`: a prompt whose one right continuation is `output`.
    """

    kind: Literal["text", "open", "task"]
    prompt: tuple[int, ...]
    output: tuple[int, ...] = ()
    tokens: int = 0


class Script(Value, frozen=True, tag="script"):
    """What the evaluator reveals after `trial_ready`: the seed and every pair made from it."""

    trial: str
    seed: str
    pairs: tuple[PairScript, ...]
    share: dict[str, float] = {}  # prefix_hit, … of the content, as reported
    tokenizer: str | None = None  # with max_context and the lease, all that the script follows from
    max_context: int = 0
    quality: tuple[QualityItem, ...] = ()  # where the plan asks for it


class RequestSample(Value, frozen=True, tag="request_sample"):
    """What the host saw of one request. Times are nanoseconds of the host's monotonic clock,
    relative to the block's start. `token_ns[i]` is when `tokens[i]` arrived."""

    id: int
    sent_ns: int
    tokens: tuple[int, ...] = ()
    token_ns: tuple[int, ...] = ()
    finish: str | None = None
    error: str | None = None


class BlockSample(Value, frozen=True, tag="block_sample"):
    """One timed block of one side. `void` says why it doesn't count (null: it counts).

    `turn_ns[i]`, `turn_tokens[i]`: nanoseconds and output tokens of its i-th turn, counted from
    before the side was woken until it stood still again; empty where the sides took no turns.
    `warm_up` is what came of the untimed requests before it: other shapes, whose outputs must be
    right as well.
    """

    pair: int
    start: int  # which cold start (0 in a resident trial)
    side: Literal["A", "B"]
    position: int  # 0: ran first in its pair
    wall_ns: int
    requests: tuple[RequestSample, ...]
    busy_cpu_ns: int = 0
    frozen_cpu_ns: int = 0
    waited_ns: int = 0
    steal_ns: int = 0
    void: str | None = None
    turn_ns: tuple[int, ...] = ()
    turn_tokens: tuple[int, ...] = ()
    warm_up: tuple[RequestSample, ...] = ()


class Grade(Value, frozen=True, tag="grade"):
    """The float32 start release scoring one output of side B (teacher-forced).

    `gaps[i]`: largest logit minus the emitted token's logit; 0.0 where it is the argmax.
    `same_as_a`: side A gave the same tokens for the same request.
    """

    pair: int
    request: int
    gaps: tuple[float, ...]
    logprobs: tuple[float, ...]
    same_as_a: bool


class Quality(Value, frozen=True, tag="quality"):
    """One side on the script's quality set. `R` is the float32 start, which both are held against.

    The negative log-likelihoods (nats, of the `text` items) are what the side's own engine says.
    `outputs` are the tokens that it served, greedily, for the `open` and `task` items in their
    order, and `gaps` what the float32 start thinks of them (largest logit minus that of the token).
    Of `R`, `outputs` is empty and `gaps` are those of the tasks' right answers.
    """

    side: Literal["A", "B", "R"]
    tokens: int
    nll_sum: float
    per_passage_nll: tuple[float, ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    gaps: tuple[tuple[float, ...], ...] = ()


class QualityMeasure(Value, frozen=True, tag="quality_measure"):
    """One measure of the quality suite: its value for the start in float32 and both sides.

    `loss`: how much worse B is than the start, on average; `upper`: the 95 % upper bound of that,
    which must not be above `margin`.
    """

    name: str
    unit: str
    start: float
    a: float
    b: float
    loss: float
    upper: float
    margin: float
    count: int

    @property
    def ok(self) -> bool:
        return self.upper <= self.margin


class Evidence(Value, frozen=True, tag="evidence"):
    """Everything a verdict is derived from; stored as a blob, never edited.

    `counters` are the engine's own, but for `bytes_per_pass` and `bandwidth_bytes_s`, which the
    host writes over whatever a trial says (0: not known): the physical floor.
    `failure` is `None` when the blocks ran; else what ended the trial: `start`, `prepare`, `block`
    and `detail` is the engine's own error line. `engaged` is null when not tried.
    """

    trial: str
    epoch: int
    attempt: int
    host: str
    lease: Lease
    commitment: str
    script: str | None  # blob digest of the Script
    rung: str
    phases_s: dict[str, float] = {}
    blocks: tuple[BlockSample, ...] = ()
    failure: str | None = None
    detail: str = ""
    engaged: bool | None = None
    engaged_detail: str = ""
    grades: tuple[Grade, ...] = ()
    noise_gap: float | None = None  # largest gap of side A's own graded outputs, this host
    quality: tuple[Quality, ...] = ()
    device_s: float = 0.0
    counters: dict[str, int] = {}
    reproof: str = ""
    hopeless: bool = False  # timing ended early by the plan's `hopeless_gap`


class Interval(Value, frozen=True, tag="interval"):
    """A ratio B/A (> 1 is better, whatever the metric's direction) with its bounds.

    A bound is null where the data don't give one yet.
    """

    metric: str
    estimate: float
    low: float | None
    high: float | None
    units: int  # pairs, turns, or engine starts for a cold trial
    unit: str = "pairs"


class Verdict(Value, frozen=True, tag="verdict"):
    """The judgement of one trial. Never edited; a later event may void it and says why."""

    trial: str
    candidate: str | None
    tier: Tier
    word: Word
    reason: str
    evidence: str  # blob digest
    interval: Interval | None = None
    output_class: str | None = None
    metrics_a: dict[str, float] = {}
    metrics_b: dict[str, float] = {}
    voided_blocks: int = 0
    alpha_spent: float = 0.0
    device_s: float = 0.0
    rung: str = "hot"
    start_s: float | None = None
    quarantined: str | None = None
    quality: tuple[QualityMeasure, ...] = ()
