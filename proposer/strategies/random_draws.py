"""`random`: the control arm. The same moves, drawn blindly, always on the start release.

A draw makes one to three moves (half of the draws one, a quarter two, a quarter three), each
uniform over all rewrites and all knobs, with uniform parameters and values (log-uniform where the
space says so). Nothing that was learnt is used, and no order of the catalogue.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from proposer.playbook import REWRITES, AnchorGoneError, Rewrite
from proposer.strategies.base import CLASSES, Context, Outcome, Proposal
from proposer.strategies.proposing import candidate_id
from protos.candidate import Build, Scalar

_TRIES = 50
_MOVES = (1, 1, 2, 3)
Knob = Mapping[str, Any]


class RandomDraws:
    """Draws from the campaign's own seed: the n-th draw is the same after a restart."""

    name = "random"
    arm = "random"

    def __init__(self, rewrites: tuple[Rewrite, ...] = REWRITES) -> None:
        self._rewrites = rewrites
        self._rng: random.Random | None = None

    def propose(self, context: Context) -> Proposal | None:
        """The first draw that wasn't sent. The context's base is the start release."""
        if self._rng is None:
            self._rng = random.Random(f"random/{context.campaign}")  # seeded, not secret
        for _ in range(_TRIES + len(context.known)):
            proposal = self._draw(context, self._rng)
            if proposal and candidate_id(context, proposal, self.arm) not in context.known:
                return proposal
        return None

    def learn(self, outcome: Outcome) -> None:
        """A control arm learns nothing."""

    def _draw(self, context: Context, rng: random.Random) -> Proposal | None:
        rewrites = [r for r in self._rewrites if context.accepts(r.output_class)]
        knobs = [
            k for k in context.space if context.accepts(str(k.get("output_class", CLASSES[1])))
        ]
        moves: list[Rewrite | Knob] = [*rewrites, *knobs]
        chosen = rng.sample(moves, min(rng.choice(_MOVES), len(moves)))
        files: dict[str, str] = {}
        builds: dict[str, Build] = {}
        values: dict[str, Scalar] = {}
        labels, loosest = [], CLASSES[0]
        for move in chosen:
            if not isinstance(move, Rewrite):
                values[str(move["name"])] = _value(move, rng)
                continue
            settings = {p.name: rng.choice(p.values) for p in move.parameters}
            try:
                change = move.rewrite({**context.sources, **files}, settings)
            except AnchorGoneError:
                return None
            files.update(change.files)
            builds.update({build.name: build for build in change.builds})
            labels.append(move.label(settings))
            loosest = max(loosest, move.output_class, key=CLASSES.index)
        values = {name: value for name, value in values.items() if value != context.knob(name)}
        labels += [f"{name}={value}" for name, value in sorted(values.items())]
        if not files and not values:
            return None
        return Proposal(
            label=" + ".join(labels),
            rationale="Drawn blindly, as a control.",
            files={**files},
            knobs=values,
            builds=tuple(builds[name] for name in sorted(builds)),
            output_class=max(loosest, "equivalent", key=CLASSES.index),
        )


def _value(knob: Knob, rng: random.Random) -> Scalar:
    value: Scalar
    if knob["kind"] == "bool":
        value = rng.choice((False, True))
    elif knob["kind"] == "choice":
        value = rng.choice(list(knob["choices"]))
    else:
        low, high = float(knob["low"]), float(knob["high"])
        if knob.get("log"):
            drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
        else:
            drawn = rng.uniform(low, high + (1.0 if knob["kind"] == "int" else 0.0))
        value = min(int(drawn), int(high)) if knob["kind"] == "int" else drawn
    return value
