"""`knobs`: Optuna's tree-structured Parzen estimator over the engine's declared space.

A base release has a study of its own, seeded by campaign and release: first each live knob alone
away from the base, then what the estimator suggests from all outcomes on this base.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import optuna

from proposer.strategies.base import Context, Outcome, Proposal
from proposer.strategies.proposing import candidate_id
from protos.candidate import Scalar
from protos.ids import digest_value

_TRIES = 30  # suggestions looked at before giving up for now
_STARTUP = 6
Knobs = dict[str, Scalar]


class KnobSearch:
    """Suggests knob values; learns log-ratios against the base."""

    name = "knobs"
    arm = "search"

    def __init__(self) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._base = ""
        self._study: optuna.Study | None = None
        self._waiting: dict[str, optuna.trial.Trial] = {}  # label to trial
        self._singles: list[Knobs] = []
        self._early: list[Outcome] = []  # told before the study of their base was made

    def propose(self, context: Context) -> Proposal | None:
        """The next set of knobs that differs from the base and wasn't sent."""
        if context.base.id != self._base:
            self._begin(context)
        while self._singles:
            proposal = _proposal(context, self._singles.pop(0))
            if proposal and candidate_id(context, proposal, self.arm) not in context.known:
                return proposal
        return self._suggested(context)

    def learn(self, outcome: Outcome) -> None:
        if outcome.tier not in (None, "fast"):
            return
        if outcome.tried.candidate.base != self._base:
            self._early.append(outcome)
            return
        self._tell(outcome)

    def _begin(self, context: Context) -> None:
        self._base = context.base.id
        seed = int(digest_value([context.campaign, self._base])[:8], 16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, n_startup_trials=_STARTUP, constant_liar=True
            )
        self._study = optuna.create_study(sampler=sampler, direction="maximize")
        self._waiting = {}
        self._space = {knob["name"]: knob for knob in context.space if _may_vary(context, knob)}
        self._distributions = {name: _distribution(knob) for name, knob in self._space.items()}
        self._values = {name: context.knob(name) for name in self._space}
        self._singles = [*_singles(context, self._space.values())]
        early, self._early = self._early, []
        for outcome in early:
            self.learn(outcome)

    def _suggested(self, context: Context) -> Proposal | None:
        assert self._study is not None  # for mypy: `propose` has made it
        if not self._distributions:
            return None
        for _ in range(_TRIES):
            trial = self._study.ask(self._distributions)
            proposal = _proposal(context, dict(trial.params))
            if proposal and candidate_id(context, proposal, self.arm) not in context.known:
                self._waiting[proposal.label] = trial
                return proposal
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return None

    def _tell(self, outcome: Outcome) -> None:
        assert self._study is not None  # for mypy: the base is known, so it was made
        ratio = outcome.tried.ratio
        bad = outcome.tried.word in ("incorrect", "invalid", "refused") or not ratio
        asked = self._waiting.pop(outcome.tried.candidate.label, None)
        failed, complete = optuna.trial.TrialState.FAIL, optuna.trial.TrialState.COMPLETE
        if asked is not None:
            if bad:
                self._study.tell(asked, state=failed)
            else:
                self._study.tell(asked, math.log(ratio or 1.0))
            return
        params = {**self._values, **outcome.tried.candidate.knobs}
        params = {name: value for name, value in params.items() if name in self._distributions}
        if not bad and all(_holds(self._distributions[n], v) for n, v in params.items()):
            self._study.add_trial(
                optuna.trial.create_trial(
                    params=params,
                    distributions=self._distributions,
                    value=math.log(ratio or 1.0),
                    state=complete,
                )
            )


def label_of(knobs: Mapping[str, Scalar]) -> str:
    """`knobs threads=1 block_size=32`, in the order of names."""
    return " ".join(["knobs", *(f"{name}={knobs[name]}" for name in sorted(knobs))])


def _proposal(context: Context, knobs: Knobs) -> Proposal | None:
    changed = {name: value for name, value in knobs.items() if value != context.knob(name)}
    if not changed:
        return None
    classes = {knob["name"]: str(knob.get("output_class", "equivalent")) for knob in context.space}
    loosest = max(
        (classes[name] for name in changed), key=("bitwise", "equivalent", "quality").index
    )
    return Proposal(
        label=label_of(changed),
        rationale="Suggested from the outcomes of other settings on this release.",
        knobs=changed,
        output_class=loosest,
    )


def _may_vary(context: Context, knob: Mapping[str, Any]) -> bool:
    if not context.accepts(str(knob.get("output_class", "equivalent"))):
        return False
    if knob["kind"] in ("bool", "choice"):
        return True
    return bool(knob["low"] < knob["high"])


def _distribution(knob: Mapping[str, Any]) -> optuna.distributions.BaseDistribution:
    match knob["kind"]:
        case "int":
            log = bool(knob.get("log"))
            return optuna.distributions.IntDistribution(
                int(knob["low"]), int(knob["high"]), log=log
            )
        case "float":
            log = bool(knob.get("log"))
            return optuna.distributions.FloatDistribution(knob["low"], knob["high"], log=log)
        case "bool":
            return optuna.distributions.CategoricalDistribution([False, True])
        case "choice":
            return optuna.distributions.CategoricalDistribution(list(knob["choices"]))
    raise ValueError(f"knob {knob['name']} is of unknown kind {knob['kind']!r}")


def _holds(distribution: optuna.distributions.BaseDistribution, value: Scalar) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:
        return False


def _singles(context: Context, knobs: Iterable[Mapping[str, Any]]) -> Iterable[Knobs]:
    """Each live knob alone: the other side of a switch, a quarter and four times a number."""
    for knob in knobs:
        if knob["rung"] != "live":
            continue
        name, now = knob["name"], context.knob(knob["name"])
        if knob["kind"] == "bool":
            yield {name: not now}
        elif knob["kind"] == "int" and isinstance(now, int):
            for value in (now // 4, now * 4):
                yield {name: min(max(value, int(knob["low"])), int(knob["high"]))}
