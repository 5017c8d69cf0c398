"""Strategies on made-up histories: what they propose, in what order, what they never repeat."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from proposer.playbook import REWRITES, AnchorGoneError, Change, Parameter, Rewrite
from proposer.strategies import Context, Outcome, Proposal, Strategy, Tried
from proposer.strategies.knobs import KnobSearch
from proposer.strategies.merging import Conflict, merge_texts
from proposer.strategies.playbook import Playbook
from proposer.strategies.proposing import candidate_of
from proposer.strategies.random_draws import RandomDraws
from proposer.strategies.recombine import Recombine
from protos.candidate import Candidate
from protos.ids import digest_bytes
from protos.release import Release
from protos.target import Objective

Made = Callable[..., Context]


def judged(candidate: Candidate, word: str, ratio: float | None = None) -> Outcome:
    return Outcome(Tried(candidate, word, ratio), "fast")


def walk(strategy: Strategy, context: Context, count: int) -> Iterator[tuple[Proposal, Candidate]]:
    """Proposals in turn, each known from then on."""
    known = set(context.known)
    for _ in range(count):
        proposal = strategy.propose(replace(context, known=frozenset(known)))
        if not isinstance(proposal, Proposal):
            return
        candidate = candidate_of(context, proposal, strategy.name, strategy.arm)
        known.add(candidate.id)
        yield proposal, candidate


def rewrite(name: str, path: str = "slim/new.py", output_class: str = "equivalent") -> Rewrite:
    return Rewrite(
        name,
        "why",
        lambda sources, settings: Change({path: f"VALUE = {name!r}, {settings!r}\n"}),
        (Parameter("size", (4, 2, 8)),),
        output_class,
    )


def test_the_playbook_plays_every_best_guess_before_any_other_setting(context: Made) -> None:
    plays = list(walk(Playbook((rewrite("a"), rewrite("b"))), context(), 10))
    labels = [proposal.label for proposal, _ in plays]
    assert labels == ["a size=4", "b size=4", "a size=2", "a size=8", "b size=2", "b size=8"]


def test_the_playbook_goes_on_with_other_settings_of_winners_first(context: Made) -> None:
    book = Playbook((rewrite("a"), rewrite("b"), rewrite("c")))
    first = list(walk(book, context(), 3))
    for (_, candidate), (word, ratio) in zip(
        first, (("no_gain", 1.0), ("faster", 1.4), ("incorrect", None)), strict=True
    ):
        book.learn(judged(candidate, word, ratio))
    known = frozenset(candidate.id for _, candidate in first)
    more = [proposal.label for proposal, _ in walk(book, context(known=known), 9)]
    assert more == ["b size=2", "b size=8", "a size=2", "a size=8"]


def test_on_a_new_base_winners_of_the_old_come_first_and_losers_not_at_all(context: Made) -> None:
    book = Playbook((rewrite("a"), rewrite("b"), rewrite("c")))
    plays = list(walk(book, context(), 3))
    for (_, candidate), (word, ratio) in zip(
        plays, (("no_gain", 1.0), ("faster", 1.2), ("slower", 0.8)), strict=True
    ):
        book.learn(judged(candidate, word, ratio))
    old = context()
    base = Release(old.campaign, 1, {**old.base.files, "slim/x.py": "0" * 64}, parent=old.base.id)
    known = frozenset(candidate.id for _, candidate in plays)
    again = [p.label for p, _ in walk(book, context(base=base, known=known), 20)]
    assert again == [
        *("b size=4", "b size=2", "b size=8", "a size=2", "a size=8", "a size=4"),
        *("c size=2", "c size=8"),
    ]


def test_classes_that_the_objective_doesnt_accept_are_left_out(context: Made) -> None:
    book = Playbook((rewrite("loose", output_class="quality"),))
    assert book.propose(context()) is None
    accepting = Objective("output_tok_s", output_class="quality")
    assert book.propose(context(objective=accepting)) is not None


def test_the_whole_playbook_goes_out_without_a_repeat(context: Made) -> None:
    candidates = [c.id for _, c in walk(Playbook(), context(), 500)]
    assert len(set(candidates)) == len(candidates)
    accepted = [r for r in REWRITES if r.output_class != "quality"]
    # Some settings make no difference to the start tree; every rewrite makes one.
    assert len(candidates) >= len(accepted)


def test_knobs_differ_from_the_base_and_dont_repeat(context: Made) -> None:
    found = list(walk(KnobSearch(), context(), 25))
    assert len(found) == 25
    assert len({candidate.id for _, candidate in found}) == 25
    for proposal, _ in found:
        assert proposal.knobs
        assert all(value != context().knob(name) for name, value in proposal.knobs.items())


def test_knobs_are_the_same_for_the_same_campaign_and_outcomes(context: Made) -> None:
    def labels() -> list[str]:
        search, told = KnobSearch(), []
        for number, (proposal, candidate) in enumerate(walk(search, context(), 20)):
            told.append(proposal.label)
            search.learn(judged(candidate, "no_gain", 1.0 + number / 100))
        return told

    assert labels() == labels()


def test_knob_search_moves_towards_what_wins(context: Made) -> None:
    search = KnobSearch()
    late: list[int] = []
    for number, (proposal, candidate) in enumerate(walk(search, context(), 60)):
        chunk = int(proposal.knobs.get("prefill_chunk", 512))
        search.learn(judged(candidate, "faster", 1.0 + (chunk > 1500) * 0.5))
        if number >= 40:
            late.append(chunk)
    assert sum(chunk > 1500 for chunk in late) > len(late) / 2


def test_knobs_of_before_a_restart_are_learnt_from(context: Made) -> None:
    before = KnobSearch()
    plays = list(walk(before, context(), 20))
    after = KnobSearch()
    for _, candidate in plays:
        after.learn(judged(candidate, "slower", 0.9))
    known = frozenset(candidate.id for _, candidate in plays)
    assert len(list(walk(after, context(known=known), 5))) == 5


def test_the_control_arm_always_builds_on_the_start_and_draws_combinations(context: Made) -> None:
    draws = list(walk(RandomDraws(), context(), 60))
    assert len({candidate.id for _, candidate in draws}) == 60
    assert all(candidate.arm == "random" for _, candidate in draws)
    assert any(proposal.knobs and proposal.files for proposal, _ in draws)
    assert any(proposal.knobs and not proposal.files for proposal, _ in draws)
    assert sum(" + " in proposal.label for proposal, _ in draws) >= 10


def test_the_control_arm_reaches_every_rewrite_and_every_knob(context: Made) -> None:
    draws = list(walk(RandomDraws(), context(), 600))
    text = " ".join(proposal.label for proposal, _ in draws)
    for each in REWRITES:
        assert (each.name in text) == (each.output_class != "quality")
    for knob in context().space:
        assert f"{knob['name']}=" in text or knob["low"] == knob["high"]


def test_the_control_arm_draws_the_same_again_after_a_restart(context: Made) -> None:
    draws = [c for _, c in walk(RandomDraws(), context(), 12)]
    known = frozenset(c.id for c in draws[:6])
    resumed = [c for _, c in walk(RandomDraws(), context(known=known), 6)]
    assert [c.id for c in resumed] == [c.id for c in draws[6:]]


@pytest.fixture
def winners(context: Made, slim: dict[str, str]) -> tuple[Context, Recombine]:
    """Three winners on the start: two rewrites of different functions, and a knob."""
    blobs: dict[str, str] = {}
    history = []
    named = {r.name: r for r in REWRITES}
    for name, ratio in (("lazy-remember", 1.1), ("steady-plan", 1.3)):
        change = named[name].rewrite(slim, named[name].best_guess())
        blobs |= {digest_bytes(text.encode()): text for text in change.files.values()}
        proposal = Proposal(name, "why", files={**change.files}, builds=change.builds)
        history.append(
            Tried(candidate_of(context(), proposal, "playbook", "search"), "faster", ratio)
        )
    knob = Proposal("knobs prefix_caching=False", "why", knobs={"prefix_caching": False})
    history.append(Tried(candidate_of(context(), knob, "knobs", "search"), "faster", 1.2))
    loser = Proposal("knobs threads=1", "why", knobs={"threads": 1})
    history.append(Tried(candidate_of(context(), loser, "knobs", "search"), "slower", 0.6))
    return context(history=tuple(history)), Recombine(blobs.__getitem__)


def test_winners_are_paired_strongest_first(winners: tuple[Context, Recombine]) -> None:
    context, recombine = winners
    labels = [proposal.label for proposal, _ in walk(recombine, context, 9)]
    assert labels == [
        "steady-plan + knobs prefix_caching=False",
        "steady-plan + lazy-remember",
        "knobs prefix_caching=False + lazy-remember",
    ]


def test_a_pair_that_won_grows_into_three(winners: tuple[Context, Recombine]) -> None:
    context, recombine = winners
    proposal, pair = next(walk(recombine, context, 1))
    history = (*context.history, Tried(pair, "faster", 1.6))
    grown = [p for p, _ in walk(recombine, replace(context, history=history), 9)]
    assert any(p.parents[0] == pair.id and len(p.files) == 2 and p.knobs for p in grown)
    assert proposal.parents == (context.history[1].candidate.id, context.history[2].candidate.id)


def test_two_changes_of_different_functions_merge_and_of_the_same_dont(
    slim: dict[str, str],
) -> None:
    named = {r.name: r for r in REWRITES}

    def layers(name: str) -> str:
        change = named[name].rewrite(slim, named[name].best_guess())
        return change.files["slim/layers.py"]

    base = slim["slim/layers.py"]
    merged = merge_texts(base, layers("c-norm"), layers("c-rope"))
    assert "native_rms_norm" in merged
    assert "native_rotate" in merged
    with pytest.raises(Conflict):
        merge_texts(base, layers("c-silu-mul"), layers("fused-gate-up"))


def test_the_space_of_the_engine_is_plain_data(context: Made) -> None:
    assert json.loads(json.dumps(context().space))
    with pytest.raises(AnchorGoneError):
        rewrite("a").rewrite({}, {"size": 4})
