"""Output classes, the quality suite, agreement of tiers, and seeds."""

import random
import stat
from pathlib import Path

import pytest

from evaluator.agreement import agreement, kendall_tau_b, missed_winners
from evaluator.grade import CEILING_GAP, DEFAULT_GAP, Said, grade, noise_floor, repetition
from evaluator.seeds import commitment_of, read_secret, seed_of
from protos.trial import BlockSample, Grade, RequestSample, Verdict


def graded(*gaps: float, same: bool = False) -> Grade:
    return Grade(0, 0, gaps, tuple(-1.0 for _ in gaps), same)


def test_the_noise_floor_rises_with_what_side_a_shows_but_not_for_ever() -> None:
    assert noise_floor(None) == DEFAULT_GAP
    assert noise_floor(0.1) == DEFAULT_GAP
    assert noise_floor(0.7) == 0.7
    assert noise_floor(5.0) == CEILING_GAP


@pytest.mark.parametrize(
    ("gaps", "said", "expected"),
    [
        ((0.0, 0.4), Said(0, 100), "bitwise"),
        ((0.0, 0.0, 0.4), Said(1, 100), "equivalent"),
        ((0.0, 0.0, 0.6), Said(1, 100), "quality"),
        ((0.4, 0.4, 0.4), Said(10, 60), "quality"),  # each small, all together too many
        ((0.0, 9.0), Said(1, 100), "incorrect"),
        ((1.5,) * 20, Said(1, 100), "incorrect"),
        ((-0.5, 0.0), Said(1, 100), "incorrect"),
    ],
)
def test_the_class_follows_from_the_gaps(
    gaps: tuple[float, ...], said: Said, expected: str
) -> None:
    assert grade([graded(*gaps)], None, said).output_class == expected


def test_differing_outputs_that_were_not_graded_count_like_those_that_were() -> None:
    few = grade([graded(0.0, 0.4)], None, Said(1, 50))
    many = grade([graded(0.0, 0.4)], None, Said(10, 50))
    assert (few.output_class, many.output_class) == ("equivalent", "quality")


def test_grading_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no output"):
        grade([], None, Said(0, 0))


def test_text_that_repeats_itself_is_told_apart() -> None:
    def block(tokens: tuple[int, ...]) -> BlockSample:
        sample = RequestSample(0, 0, tokens, tuple(range(1, len(tokens) + 1)), "length")
        return BlockSample(0, 0, "B", 0, 100, (sample,))

    assert repetition([block((1, 2, 3) * 10)], "B") == pytest.approx(25 / 28)
    assert repetition([block(tuple(range(30)))], "B") == 0.0
    assert repetition([block((1, 2))], "B") is None


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([12, 2, 1, 12, 2], [1, 4, 7, 1, 0], -0.47140452079103173),  # scipy.stats.kendalltau
        ([1, 1, 1], [1, 2, 3], None),
        ([], [], None),
    ],
)
def test_kendalls_tau_b(left: list[float], right: list[float], expected: float | None) -> None:
    found = kendall_tau_b(left, right)
    assert found == (None if expected is None else pytest.approx(expected))


def test_agreement_has_an_interval_around_it_and_repeats_itself() -> None:
    rng = random.Random(3)
    fast = [rng.gauss(0, 1) for _ in range(40)]
    slow = [x + rng.gauss(0, 0.5) for x in fast]
    found = agreement(fast, slow, seed=1, rounds=200)
    assert found.tau is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.tau < found.high
    assert found == agreement(fast, slow, seed=1, rounds=200)


def test_a_winner_of_the_slow_tier_that_the_fast_one_stopped_is_missed() -> None:
    def verdict(candidate: str, tier: str, word: str) -> Verdict:
        return Verdict("t", candidate, tier, word, "", "")  # type: ignore[arg-type]

    fast = [verdict("c1", "fast", "faster"), verdict("c2", "fast", "no_gain")]
    fast += [verdict("c3", "fast", "inconclusive"), verdict("c4", "fast", "incorrect")]
    slow = [verdict(f"c{i}", "slow", "faster") for i in range(1, 5)]
    assert missed_winners(fast, slow) == ["c2", "c3"]


def test_a_seed_belongs_to_one_grant_and_is_committed_to() -> None:
    assert seed_of(b"s", "t1", 1) == seed_of(b"s", "t1", 1)
    assert len({seed_of(b"s", "t1", 1), seed_of(b"s", "t1", 2), seed_of(b"x", "t1", 1)}) == 3
    assert commitment_of(seed_of(b"s", "t1", 1)) != commitment_of(seed_of(b"s", "t1", 2))


def test_the_secret_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    home = tmp_path / "evaluator"
    secret = read_secret(home)
    assert read_secret(home) == secret
    path = home / "seed-secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in home.iterdir()] == ["seed-secret"]
    path.chmod(0o644)
    with pytest.raises(PermissionError, match="chmod 600"):
        read_secret(home)


def test_a_damaged_secret_is_refused(tmp_path: Path) -> None:
    read_secret(tmp_path)
    (tmp_path / "seed-secret").write_bytes(b"short")
    with pytest.raises(ValueError, match="remove it"):
        read_secret(tmp_path)
