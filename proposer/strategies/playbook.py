"""`playbook`: rewrites a person would try by hand, best guesses first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proposer.playbook import REWRITES, AnchorGoneError, Rewrite
from proposer.strategies.base import Context, Outcome, Proposal
from proposer.strategies.proposing import candidate_id
from protos.candidate import Scalar

_HOPELESS = ("incorrect", "invalid", "refused")
_WORTH_RETRYING = 0.98
Play = tuple[Rewrite, dict[str, Scalar]]


class Playbook:
    """Every rewrite once; then other settings, of winners first; then, on a new base, again what
    was no worse on an old one."""

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
        rewrites = [r for r in self._rewrites if context.accepts(r.output_class)]
        for rewrite in rewrites:
            yield rewrite, rewrite.best_guess()
        by_gain = sorted(rewrites, key=lambda r: -self._best_ratio(r))
        for rewrite in by_gain:
            if self._word(rewrite) in _HOPELESS:
                continue
            for settings in rewrite.settings():
                outcome = self._outcomes.get(rewrite.label(settings))
                if outcome is None or _again(outcome):
                    yield rewrite, settings

    def _best_ratio(self, rewrite: Rewrite) -> float:
        """The largest ratio any setting had; 1 before it was tried."""
        seen = [self._outcomes.get(rewrite.label(s)) for s in rewrite.settings()]
        ratios = [o.tried.ratio for o in seen if o is not None and o.tried.ratio is not None]
        return max(ratios, default=1.0)

    def _word(self, rewrite: Rewrite) -> str | None:
        outcome = self._outcomes.get(rewrite.label(rewrite.best_guess()))
        return outcome.tried.word if outcome else None


def _again(outcome: Outcome) -> bool:
    return outcome.tried.word not in _HOPELESS and (outcome.tried.ratio or 0.0) >= _WORTH_RETRYING


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
