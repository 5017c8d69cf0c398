"""`playbook`: rewrites a person would try by hand, best guesses first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from proposer.playbook import REWRITES, AnchorGoneError, Rewrite
from proposer.strategies.base import Context, Outcome, Proposal
from proposer.strategies.proposing import candidate_id
from protos.candidate import Scalar

_HOPELESS = ("incorrect", "invalid", "refused")
_A_WINNER, _NO_WORSE = 1.03, 0.98  # ratios to a base
Play = tuple[Rewrite, dict[str, Scalar]]


class Playbook:
    """Every rewrite once, then other settings, of winners first. On a new base, winners of an old
    one come first, and what was no worse there comes again after what is new."""

    name = "playbook"
    arm = "search"

    def __init__(self, rewrites: tuple[Rewrite, ...] = REWRITES) -> None:
        self._rewrites = rewrites
        self._outcomes: dict[str, Outcome] = {}  # the newest by label
        self._base = ""
        self._made: dict[str, tuple[Proposal, str] | None] = {}  # by label, on this base

    def propose(self, context: Context) -> Proposal | None:
        """The next play that fits the base and hasn't been sent on it."""
        if context.base.id != self._base:
            self._base, self._made = context.base.id, {}
        for rewrite, settings in self._order(context):
            made = self._make(context, rewrite, settings)
            if made and made[1] not in context.known:
                return made[0]
        return None

    def learn(self, outcome: Outcome) -> None:
        self._outcomes[outcome.tried.candidate.label] = outcome

    def _make(
        self, context: Context, rewrite: Rewrite, settings: Mapping[str, Scalar]
    ) -> tuple[Proposal, str] | None:
        label = rewrite.label(settings)
        if label not in self._made:
            proposal = propose_rewrite(context, rewrite, settings)
            self._made[label] = (
                None if proposal is None else (proposal, candidate_id(context, proposal, self.arm))
            )
        return self._made[label]

    def _order(self, context: Context) -> Iterator[Play]:
        """Plays, best first. Those that were sent on this base come up too and are passed over."""
        rewrites = [r for r in self._rewrites if context.accepts(r.output_class)]
        rewrites = [r for r in rewrites if self._word(r) not in _HOPELESS]
        by_gain = sorted(rewrites, key=lambda r: -self._best_ratio(r))
        promising = [r for r in by_gain if self._best_ratio(r) >= _NO_WORSE]
        yield from self._again(by_gain, _A_WINNER)
        yield from self._untried(rewrites, 1)
        yield from self._untried(promising)
        yield from self._again(by_gain, _NO_WORSE)
        yield from self._untried(by_gain)

    def _again(self, rewrites: list[Rewrite], least: float) -> Iterator[Play]:
        """What had at least this ratio on some base."""
        for rewrite, settings in _plays(rewrites):
            outcome = self._outcomes.get(rewrite.label(settings))
            if outcome is None or outcome.tried.word in _HOPELESS:
                continue
            if (outcome.tried.ratio or 0.0) >= least:
                yield rewrite, settings

    def _untried(self, rewrites: list[Rewrite], each: int | None = None) -> Iterator[Play]:
        """What was never judged, of the first `each` settings of every rewrite."""
        for rewrite, settings in _plays(rewrites, each):
            if rewrite.label(settings) not in self._outcomes:
                yield rewrite, settings

    def _best_ratio(self, rewrite: Rewrite) -> float:
        """The largest ratio any setting had; 1 before it was tried."""
        seen = [self._outcomes.get(rewrite.label(s)) for s in rewrite.settings()]
        ratios = [o.tried.ratio for o in seen if o is not None and o.tried.ratio is not None]
        return max(ratios, default=1.0)

    def _word(self, rewrite: Rewrite) -> str | None:
        outcome = self._outcomes.get(rewrite.label(rewrite.best_guess()))
        return outcome.tried.word if outcome else None


def _plays(rewrites: list[Rewrite], each: int | None = None) -> Iterator[Play]:
    for rewrite in rewrites:
        for settings in islice(rewrite.settings(), each):
            yield rewrite, settings


def propose_rewrite(
    context: Context, rewrite: Rewrite, settings: Mapping[str, Scalar]
) -> Proposal | None:
    """The proposal of a rewrite on the context's base; None where it doesn't apply."""
    try:
        change = rewrite.rewrite(context.sources, settings)
    except AnchorGoneError:
        return None
    return Proposal(
        label=rewrite.label(settings),
        rationale=rewrite.rationale,
        files={**change.files},
        knobs=change.knobs,
        builds=change.builds,
        output_class=rewrite.output_class,
    )
