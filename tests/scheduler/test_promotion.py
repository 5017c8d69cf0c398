from __future__ import annotations

import msgspec
import pytest

from protos.messages import Policy
from protos.target import Limit
from protos.trial import Tier
from scheduler.decide import Append, decide
from scheduler.promotion import acceptable, next_release
from tests.scheduler.folded import Folded
from tests.scheduler.simulated_rooms import START, knob, opening


def test_a_release_holds_the_whole_tree_and_the_three_trials_it_stands_on() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    given.promote(patch)
    release = given.campaign.incumbent
    assert release is not None
    assert (release.number, release.parent, release.candidate) == (1, START.id, patch.id)
    assert release.files == START.files
    assert release.knobs == {"threads": 1, "a": 1}
    assert [given.campaign.trials[t].tier for t in release.evidence] == ["fast", "slow", "cold"]


@pytest.mark.parametrize("tiers", [("fast",), ("fast", "slow")])
def test_nothing_is_released_without_a_cold_confirm(tiers: tuple[Tier, ...]) -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    for tier in tiers:
        given.judge(patch, tier)
    with pytest.raises(ValueError, match="fast, slow and cold"):
        next_release(given.campaign, given.campaign.candidates[patch.id])


def test_a_cold_confirm_that_is_not_faster_retires_the_candidate() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    given.judge(patch, "fast")
    given.judge(patch, "slow")
    given.judge(patch, "cold", "inconclusive")
    assert given.stage(patch) == "done"


def test_a_slow_gain_under_the_minimum_effect_is_no_win() -> None:
    given = Folded(opening(min_effect=0.05))
    patch = given.admit(knob("a"))
    given.judge(patch, "fast")
    given.judge(patch, "slow", gain=0.04)
    assert given.stage(patch) == "done"
    assert "less than 5.0%" in given.campaign.candidates[patch.id].reason


@pytest.mark.parametrize(("bound_ms", "stage"), [(300.0, "won_slow"), (100.0, "done")])
def test_a_winner_keeps_the_limits(bound_ms: float, stage: str) -> None:
    limits = (Limit("ttft_ms_p99", at_most=bound_ms),)
    order = opening()
    order = msgspec.structs.replace(
        order, objective=msgspec.structs.replace(order.objective, limits=limits)
    )
    given = Folded(order)
    patch = given.admit(knob("a"))
    given.judge(patch, "fast")
    given.judge(patch, "slow")
    assert given.stage(patch) == stage


def test_a_limit_that_was_not_measured_is_not_kept() -> None:
    order = opening()
    limits = (Limit("e2e_ms_p99", at_most=1e9),)
    order = msgspec.structs.replace(
        order, objective=msgspec.structs.replace(order.objective, limits=limits)
    )
    given = Folded(order)
    patch = given.admit(knob("a"))
    given.judge(patch, "fast")
    given.judge(patch, "slow")
    assert given.stage(patch) == "done"


@pytest.mark.parametrize(
    ("found", "asked", "fits"),
    [
        ("bitwise", "equivalent", True),
        ("equivalent", "equivalent", True),
        ("quality", "equivalent", False),
        ("equivalent", "bitwise", False),
        (None, "quality", False),
    ],
)
def test_only_outputs_of_the_asked_class_or_a_stricter_one_are_accepted(
    found: str | None, asked: str, fits: bool
) -> None:
    objective = msgspec.structs.replace(opening().objective, output_class=asked)
    assert acceptable(found, objective) is fits


def test_a_confirmed_winner_is_published_before_anything_else_is_granted() -> None:
    given = Folded()
    patch = given.admit(knob("a"))
    given.admit(knob("b"))
    for tier in ("fast", "slow", "cold"):
        given.judge(patch, tier)  # type: ignore[arg-type]
    actions = decide(given.state, given.now_s, 20.0)
    assert [type(a.event).__name__ for a in actions if isinstance(a, Append)] == ["ReleasePromoted"]
    assert [a.expect for a in actions if isinstance(a, Append)] == [0]


def test_a_campaign_that_only_measures_gives_nothing_but_fast_trials() -> None:
    given = Folded(opening(policy=Policy(control_share=0.0, promote=False)))
    patch = given.admit(knob("a"))
    given.judge(patch, "fast", gain=1.0)
    assert given.stage(patch) == "done"
