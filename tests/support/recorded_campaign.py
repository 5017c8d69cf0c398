"""A made-up campaign as its ledger holds it: every kind of verdict, promotions, closing trials.

Deterministic. Nothing here is a measurement; it exists so that doors and reports can be tested.
"""

import random

from protos import codec
from protos import events as e
from protos.candidate import Build, Candidate, Check, Cost
from protos.messages import OpenCampaign
from protos.release import EngineFacts, Release
from protos.stopping import estimate
from protos.target import Budget, Objective, Target, Workload
from protos.trial import (
    BlockSample,
    Evidence,
    Interval,
    Lease,
    Limits,
    PairScript,
    Plan,
    Request,
    RequestSample,
    Script,
    Side,
    StopRule,
    Verdict,
)
from services.blobs import Blobs, MemoryBlobs
from services.ledger.base import Recorded

CAMPAIGN = "single-20261130-1912"
OPENED_S = 1_795_000_000.0
MODEL = """class Model:
    def decode(self, token):
        hidden = self.embed(token)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)
"""
FUSED = MODEL.replace("        for layer in self.layers:\n            hidden = layer(hidden)\n", "")
FUSED = FUSED.replace("self.embed(token)", "self.fused(self.embed(token))")

# label, strategy, arm, rung, fast word, log of the true gain
CANDIDATES = [
    ("threads=2", "knobs", "search", "warm", "faster", 0.22),
    ("block size 32", "knobs", "search", "warm", "no_gain", 0.004),
    ("fused qkv projection", "playbook", "search", "warm", "faster", 0.11),
    ("C kernel: whole decode step", "playbook", "search", "warm", "faster", 0.71),
    ("KV layout head-major", "playbook", "search", "warm", "slower", -0.09),
    ("token loop in Python", "playbook", "search", "hot", "slower", -0.31),
    ("norm in C", "playbook", "search", "hot", "inconclusive", 0.012),
    ("rope table cached", "playbook", "search", "hot", "no_gain", 0.008),
    ("prefill chunk 17", "random", "random", "hot", "slower", -0.05),
    ("threads=1, chunk 512", "random", "random", "warm", "slower", -0.18),
    ("threads=2, block 8", "random", "random", "warm", "faster", 0.19),
    ("drops the last layer", "outside", "search", "hot", "incorrect", 0.05),
    ("never called", "outside", "search", "hot", "not_engaged", 0.0),
    ("endless loop in prepare", "outside", "search", "hot", "invalid", 0.0),
]


class Recording:
    """Builds the events one after the other, on a clock of its own."""

    def __init__(self, blobs: Blobs | None = None, opening: OpenCampaign | None = None) -> None:
        self.blobs: Blobs = blobs or MemoryBlobs()
        self.events: list[Recorded] = []
        self._now_s = OPENED_S
        self._rng = random.Random(7)
        self.opening = opening or OpenCampaign(
            CAMPAIGN,
            Target("slim", "smollm2"),
            Workload("single"),
            Objective("output_tok_s"),
            Budget(300.0),
        )
        files = {
            "slim/__init__.py": self.blobs.put(b'"""slim"""\n'),
            "slim/model.py": self.blobs.put(MODEL.encode()),
        }
        self.campaign = self.opening.campaign
        self.start = Release(self.campaign, 0, files, knobs={"threads": 1})

    def add(
        self, entity: str, id: str, event: object, after_s: float = 0.2, trace: str = ""
    ) -> int:
        """Append one event and return its sequence."""
        self._now_s += after_s
        seq = len(self.events) + 1
        raw = codec.encode(event)  # type: ignore[arg-type]
        self.events.append(Recorded(seq, self._now_s, entity, id, event, trace or None, raw))
        return seq

    def open(self) -> None:
        self.add("engine", "host0", e.EngineUp("host0", "cpu", ("slim", "fake")))
        self.add("campaign", self.campaign, e.CampaignOpened(self.opening))
        facts = EngineFacts("slim", "cpu", self.start.files, "[]", None)
        self.add("engine", "host0", e.EngineRebuilt("host0", self.start.id, "start", 2.1), 5.0)
        ready = e.CampaignReady(self.campaign, "host0", facts, self.start, 6.4)
        self.add("campaign", self.campaign, ready, 1.0)

    def candidate(self, number: int, base: Release) -> Candidate:
        label, strategy, arm, _, _, _ = CANDIDATES[number % len(CANDIDATES)]
        if "C kernel" in label:
            change = {"slim/model.py": self.blobs.put(FUSED.encode())}
            source = self.blobs.put(b"void step(void) {}\n")
            files: dict[str, str | None] = {**change, "slim/csrc/step.c": source}
            builds: tuple[Build, ...] = (Build("step", ("slim/csrc/step.c",)),)
        else:
            files, builds = {}, ()
        knobs = {"threads": 2, "variant": number}
        cost = Cost(wall_s=0.02)
        return Candidate(
            self.campaign,
            base.id,
            files,
            knobs,
            builds,
            arm=arm,
            strategy=strategy,
            proposer=strategy,
            label=label if number < len(CANDIDATES) else f"{label} (again, {number})",
            rationale="fewer passes over memory a token",
            cost=cost,
        )

    def judge(self, candidate: Candidate, base: Release, tier: str, word: str, gain: float) -> str:
        """Grant and end one trial of a candidate; returns the trial's id."""
        rung = next(c[3] for c in CANDIDATES if candidate.label.startswith(c[0]))
        lease = self.lease(candidate.id, base, tier, "")
        trace = f"{int(candidate.id[1:], 16):032x}"
        epoch = self.add("trial", lease.trial, e.TrialGranted(lease), 0.1, trace)
        verdict = self.verdict(lease, epoch, word, gain, "cold" if tier == "cold" else rung)
        took_s = {"fast": 0.9, "slow": 4.0, "cold": 14.0}[tier]
        self.add("trial", lease.trial, e.TrialEnded(self.campaign, epoch, verdict), took_s, trace)
        return lease.trial

    def lease(self, candidate: str | None, base: Release, tier: str, purpose: str) -> Lease:
        count = sum(1 for known in self.events if isinstance(known.event, e.TrialGranted))
        starts = 8 if tier == "cold" else 0
        side = Side(base.id, base.files, base.knobs, {})
        other = Side(base.id, base.files, base.knobs, {}, candidate, "hot")
        return Lease(
            f"t{count:012x}",
            self.campaign,
            "host0",
            1,
            tier,  # type: ignore[arg-type]
            side,
            other,
            self.opening.target,
            self.opening.workload,
            self.opening.objective,
            Plan(tier, StopRule(), Limits(), starts=starts),  # type: ignore[arg-type]
            purpose=purpose,
        )

    def verdict(self, lease: Lease, epoch: int, word: str, gain: float, rung: str) -> Verdict:
        units = {"fast": 6, "slow": 8, "cold": 8}[lease.tier]
        measured = word in ("faster", "slower", "no_gain", "inconclusive", "incorrect")
        noise = 0.03 if lease.tier == "fast" else 0.015
        ratios = [gain + self._rng.gauss(0.0, noise) for _ in range(units)] if measured else []
        evidence = self.evidence(lease, epoch, rung, ratios, word)
        digest = self.blobs.put(codec.encode(evidence))
        return Verdict(
            lease.trial,
            lease.side_b.candidate,
            lease.tier,
            word,  # type: ignore[arg-type]
            "" if measured else f"{word}: nothing that could be timed",
            digest,
            interval=interval(lease, ratios) if ratios else None,
            output_class="equivalent" if measured and word != "incorrect" else None,
            metrics_a={"output_tok_s": 48.0, "ttft_ms_p50": 31.0} if measured else {},
            metrics_b=(
                {"output_tok_s": 48.0 * 2.718281828**gain, "ttft_ms_p50": 24.0} if measured else {}
            ),
            device_s={"fast": 0.8, "slow": 3.6, "cold": 13.0}[lease.tier],
            rung=rung,
            start_s={"hot": 0.09, "warm": 0.7, "cold": 3.4}[rung],
        )

    def evidence(
        self, lease: Lease, epoch: int, rung: str, ratios: list[float], word: str
    ) -> Evidence:
        blocks: list[BlockSample] = []
        for pair, ratio in enumerate(ratios):
            wall_a = 60_000_000
            wall_b = round(wall_a * 2.718281828 ** (-ratio))
            for position, (side, wall) in enumerate((("A", wall_a), ("B", wall_b))):
                times = tuple(wall * (k + 1) // 4 for k in range(4))
                sample = RequestSample(0, 0, (5, 6, 7, 8), times, "length")
                start = pair if lease.plan.starts else 0
                blocks.append(BlockSample(pair, start, side, position, wall, (sample,)))  # type: ignore[arg-type]
        return Evidence(
            lease.trial,
            epoch,
            1,
            "host0",
            lease,
            "0" * 64,
            self.script(lease, len(ratios)),
            rung,
            phases_s={"start": 0.09, "prepare": 0.02, "blocks": 0.6, "grade": 0.08, "engage": 0.1},
            blocks=tuple(blocks),
            failure=None if ratios else "prepare",
            detail="" if ratios else "RuntimeError: time limit",
            engaged=word != "not_engaged",
            device_s=0.8,
        )

    def script(self, lease: Lease, pairs: int) -> str:
        request = Request(0, (1, 2, 3), 4)
        script = Script(lease.trial, "seed", (PairScript("A", (request,)),) * pairs)
        return self.blobs.put(codec.encode(script))

    def check(self, candidate: Candidate, ok: bool = True, reason: str = "") -> None:
        check = Check(candidate.id, ok, reason, changed=("slim/model.py:Model.decode",))
        trace = f"{int(candidate.id[1:], 16):032x}"
        self.add("candidate", candidate.id, e.CandidateChecked(self.campaign, check), 0.1, trace)

    def admit(self, candidate: Candidate) -> None:
        trace = f"{int(candidate.id[1:], 16):032x}"
        self.add("candidate", candidate.id, e.CandidateAdmitted(candidate), 0.1, trace)

    def promote(self, base: Release, candidate: Candidate, trials: tuple[str, ...]) -> Release:
        files = dict(base.files)
        files.update({path: blob for path, blob in candidate.files.items() if blob})
        release = Release(
            self.campaign,
            base.number + 1,
            files,
            {**base.knobs, **candidate.knobs},
            base.builds + candidate.builds,
            parent=base.id,
            candidate=candidate.id,
            evidence=trials,
        )
        self.add("release", release.id, e.ReleasePromoted(release, trials))
        self.add("engine", "host0", e.EngineRebuilt("host0", release.id, "promotion", 2.0), 2.0)
        return release

    def search(self, rounds: int = 3) -> Release:
        """Every kind of candidate, `rounds` times; the first big wins become releases."""
        incumbent = self.start
        for number in range(rounds * len(CANDIDATES)):
            _, _, _, _, word, gain = CANDIDATES[number % len(CANDIDATES)]
            candidate = self.candidate(number, incumbent)
            self.admit(candidate)
            self.check(candidate)
            trials = [self.judge(candidate, incumbent, "fast", word, gain)]
            if word == "faster":
                slow_word = "faster" if gain > 0.2 else "no_gain"
                slow_gain = gain * 0.93 if gain > 0.2 else 0.01
                trials.append(self.judge(candidate, incumbent, "slow", slow_word, slow_gain))
            if gain > 0.2 and word == "faster" and number < len(CANDIDATES):
                trials.append(self.judge(candidate, incumbent, "cold", "faster", gain * 0.9))
                incumbent = self.promote(incumbent, candidate, tuple(trials))
        broken = self.candidate(rounds * len(CANDIDATES), incumbent)
        self.admit(broken)
        self.check(broken, ok=False, reason="slim/model.py: line 3: invalid syntax")
        return incumbent

    def close(self) -> None:
        """The closing measurements, then the end."""
        for purpose, gain in (("final", 0.84), ("random_final", 0.17)):
            lease = self.lease(None, self.start, "cold", purpose)
            epoch = self.add("trial", lease.trial, e.TrialGranted(lease))
            verdict = self.verdict(lease, epoch, "faster", gain, "cold")
            self.add("trial", lease.trial, e.TrialEnded(self.campaign, epoch, verdict), 16.0)
        wall_s = self._now_s - OPENED_S
        done = e.CampaignFinished(self.campaign, "budget spent", wall_s, 140.5)
        self.add("campaign", self.campaign, done)

    def pause(self, reason: str = "interrupted") -> None:
        wall_s = self._now_s - OPENED_S
        self.add("campaign", self.campaign, e.CampaignPaused(self.campaign, reason, wall_s))


def interval(lease: Lease, ratios: list[float]) -> Interval:
    """A ratio with rough bounds."""
    middle = 2.718281828 ** estimate(ratios)
    unit = "starts" if lease.plan.starts else "pairs"
    low, high = 2.718281828 ** min(ratios), 2.718281828 ** max(ratios)
    return Interval(lease.objective.metric, middle, low, high, len(ratios), unit)


def finished(blobs: Blobs | None = None) -> Recording:
    """A whole campaign, from its opening to its end."""
    recording = Recording(blobs)
    recording.open()
    recording.search()
    recording.close()
    return recording


def paused(blobs: Blobs | None = None) -> Recording:
    """A campaign that was interrupted while searching."""
    recording = Recording(blobs)
    recording.open()
    recording.search(rounds=1)
    recording.pause()
    return recording
