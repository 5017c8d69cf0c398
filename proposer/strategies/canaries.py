"""`canary`: candidates whose verdict is known beforehand, to see whether the judge still finds it.

Null patches change running code and nothing that it does; gains are rewrites that win on every
machine they were measured on; cheats give wrong or fewer tokens. All build on the start release
and are never promoted. Neither a lease nor an engine is told which candidates they are; whoever
reads the ledger sees it in their label.
"""

from __future__ import annotations

from collections.abc import Mapping

from proposer.playbook import REWRITES, AnchorGoneError
from proposer.playbook.edit import guard
from proposer.strategies.base import Context, Outcome, Proposal
from proposer.strategies.proposing import candidate_id
from protos.canary import ARM, KIND_OF_TURN, Kind, label_of

_MOST = 1000  # more than any campaign has time for
Edit = tuple[str, str, str]  # path, qualified function, statements to put at its start

# Where a statement runs in every step of an engine's serving loop.
_LOOP = {
    "slim": ("slim/scheduler.py", "Scheduler.plan"),
    "vllm": ("vllm/v1/core/sched/scheduler.py", "Scheduler.schedule"),
}
# Also a cheat of the audit.
ONE_TOKEN_FEWER = """
request = sequence.request.__dict__
request["max_tokens"] = max(1, request.setdefault("_asked", request["max_tokens"]) - 1)
"""
_CONSTANT = """
return torch.zeros((hidden.shape[0], self.output.shape[0]))
"""
_CHEATS: Mapping[str, tuple[tuple[str, Edit], ...]] = {
    "slim": (
        ("one token fewer", ("slim/engine.py", "Engine._output", ONE_TOKEN_FEWER)),
        ("always the same token", ("slim/model.py", "Model.logits", _CONSTANT)),
    ),
}
# Rewrites for one sequence at a time on a CPU that gain half as much again or more.
_GAINS = ("grid4-weights", "fused-layers")


class Canaries:
    """The n-th canary of a campaign is always the same one, so a restart repeats none."""

    name = "canary"
    arm = ARM

    def __init__(self) -> None:
        self._next = 0

    def propose(self, context: Context) -> Proposal | None:
        """The first that wasn't sent. The context's base is the start release."""
        while self._next < _MOST:
            number, self._next = self._next, self._next + 1
            proposal = _canary(context, number)
            if proposal and candidate_id(context, proposal, self.arm) not in context.known:
                return proposal
        return None

    def learn(self, outcome: Outcome) -> None:
        """Nothing is to be learnt here: the report counts."""


def _canary(context: Context, number: int) -> Proposal | None:
    """None where this engine has no canary of the kind that is due."""
    kind = KIND_OF_TURN[number % len(KIND_OF_TURN)]
    try:
        if kind == "gain":
            return _gain(context, number)
        return _patched(context, kind, number)
    except AnchorGoneError:
        return None


def _gain(context: Context, number: int) -> Proposal | None:
    here = (context.target.engine, context.target.device_class, context.workload.name)
    if here != ("slim", "cpu", "single"):
        return None
    turn = number // len(KIND_OF_TURN)
    rewrite = next(r for r in REWRITES if r.name == _GAINS[turn % len(_GAINS)])
    change = rewrite.rewrite(context.sources, rewrite.best_guess())
    path, function = _LOOP["slim"]
    text = change.files.get(path, context.sources[path])
    files: dict[str, str | None] = {**change.files}
    files[path] = guard(text, function, f"_unused = {number}\n")
    return Proposal(label_of("gain", rewrite.name, number), _WHY, files, builds=change.builds)


def _patched(context: Context, kind: Kind, number: int) -> Proposal | None:
    """A statement that does nothing of note in every step; for a cheat, the cheat as well."""
    engine = context.target.engine
    if engine not in _LOOP or (kind == "cheat" and engine not in _CHEATS):
        return None
    path, function = _LOOP[engine]
    what, files = "neutral", {}
    if kind == "cheat":
        cheats = _CHEATS[engine]
        turn = number // len(KIND_OF_TURN) + number % len(KIND_OF_TURN) // 3
        what, (where, name, code) = cheats[turn % len(cheats)]
        files[where] = guard(context.sources[where], name, code)
    text = files.get(path, context.sources[path])
    files[path] = guard(text, function, f"_unused = {number}\n")
    return Proposal(label_of(kind, what, number), _WHY, {**files})


_WHY = "Its verdict is known: it shows whether the judge finds it."
