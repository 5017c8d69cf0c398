"""Non-inferiority against the start: caught at its margin, and small losses can't add up."""

import json
import random
from collections.abc import Callable

import msgspec
import pytest

from evaluator.quality import (
    MARGIN_DISAGREEMENT,
    MARGIN_GAP,
    MARGIN_NATS,
    MARGIN_TASKS,
    Suite,
    suite,
    upper_of,
)
from evaluator.quality_set import OPEN_TOKENS, quality_items
from protos.trial import Quality, QualityItem

TEXTS, OPEN, TASKS = 32, 16, 60
ITEMS = (
    *(QualityItem("text", (1, 2), (3, 4, 5)) for _ in range(TEXTS)),
    *(QualityItem("open", (1, 2), tokens=OPEN_TOKENS) for _ in range(OPEN)),
    *(QualityItem("task", (1,), (9,), 1) for _ in range(TASKS)),
)
BASE = [3.0 + 0.4 * random.Random("base").gauss(0, 1) for _ in range(TEXTS)]


def start(right: int = 40) -> Quality:
    gaps = tuple((0.0,) if task < right else (0.7,) for task in range(TASKS))
    return Quality("R", 1, 1.0, tuple(BASE), (), gaps)


def side(
    name: str,
    rng: random.Random,
    *,
    nats: float = 0.0,
    gap: float = 0.0,
    others: float = 0.0,
    wrong: int = 0,
) -> Quality:
    """A side that is worse than the start by so much on average: text, log-probability, tokens,
    tasks."""
    text = tuple(base + nats + rng.gauss(0, 0.012) for base in BASE)
    outputs = [(5,) * OPEN_TOKENS] * OPEN
    outputs += [(9,) if wrong <= task < 40 else (8,) for task in range(TASKS)]
    gaps = [
        tuple(gap / others if others and rng.random() < others else 0.0 for _ in range(OPEN_TOKENS))
        for _ in range(OPEN)
    ]
    return Quality(name, 1, 1.0, text, tuple(outputs), (*gaps, *(((0.0,),) * TASKS)))  # type: ignore[arg-type]


def judged(rng: random.Random, **worse: float) -> Suite:
    a, b = side("A", rng), side("B", rng, **worse)  # type: ignore[arg-type]
    return suite([a, b, start()], ITEMS)


def accepted(**worse: float) -> float:
    """The share of 600 such patches that pass."""
    rng = random.Random("patches")
    return sum(judged(rng, **worse).ok for _ in range(600)) / 600


def test_what_is_as_good_as_the_start_passes_and_shows_all_three_figures():
    found = judged(random.Random(1), gap=0.002, others=0.04)

    assert found.ok
    assert [one.name for one in found.measures] == [
        "perplexity of held-out text",
        "log-probability lost a token",
        "tokens other than the start's",
        "tasks answered",
    ]
    tasks = found.measures[-1]
    assert (tasks.start, tasks.a, tasks.b) == pytest.approx((40 / 60, 40 / 60, 40 / 60))
    assert "within its margins" in found.reason


@pytest.mark.parametrize(
    ("name", "worse"),
    [
        ("perplexity", {"nats": MARGIN_NATS}),
        ("log-probability", {"gap": MARGIN_GAP, "others": 0.04}),
        ("tokens other", {"gap": 0.005, "others": MARGIN_DISAGREEMENT}),
        ("tasks", {"wrong": round(MARGIN_TASKS * TASKS)}),
    ],
)
def test_a_loss_of_a_whole_margin_is_caught_nineteen_times_of_twenty(name, worse):
    found = judged(random.Random(3), **worse)

    assert accepted(**worse) <= 0.08
    failing = [one.name for one in found.measures if not one.ok]
    assert failing == [] or any(name in one for one in failing)


@pytest.mark.parametrize(
    "worse",
    [
        {"nats": 0.5 * MARGIN_NATS},
        {"gap": 0.004, "others": 0.04},
        {"gap": 0.004, "others": 0.6 * MARGIN_DISAGREEMENT},
        {"wrong": 1},
    ],
)
def test_half_a_margin_passes_nearly_always(worse):
    assert accepted(**worse) >= 0.9


def test_twenty_small_losses_in_a_row_stop_at_one_margin_when_the_start_is_the_measure():
    ends = [campaign(seed, against_start=True) for seed in range(50)]

    assert max(ends) <= 1.5 * MARGIN_NATS
    assert sum(ends) / len(ends) <= MARGIN_NATS


def test_the_same_losses_would_add_up_if_each_were_held_against_the_release_before():
    ends = [campaign(seed, against_start=False) for seed in range(20)]

    assert sum(ends) / len(ends) > 3 * MARGIN_NATS


def campaign(seed: int, against_start: bool) -> float:
    """Twenty patches that each lose a quarter of the margin: the true loss of the last release."""
    rng, lost = random.Random(seed), 0.0
    step = MARGIN_NATS / 4
    for _ in range(20):
        before = 0.0 if against_start else lost
        losses = [lost + step - before + rng.gauss(0, 0.012) for _ in range(TEXTS)]
        if upper_of(losses) <= MARGIN_NATS:
            lost += step
    return lost


@pytest.mark.parametrize(
    "torn",
    [
        lambda q: {"per_passage_nll": q.per_passage_nll[:-1]},
        lambda q: {"outputs": q.outputs[:-1]},
        lambda q: {"outputs": ((5,), *q.outputs[1:])},
        lambda q: {"gaps": q.gaps[:-1]},
    ],
)
def test_results_that_do_not_fit_the_set_are_refused(torn: Callable[[Quality], dict]):
    rng = random.Random(1)
    b = side("B", rng)

    with pytest.raises(ValueError, match=r"pair|outputs"):
        suite([side("A", rng), msgspec.structs.replace(b, **torn(b)), start()], ITEMS)


def test_the_shipped_set_is_the_same_in_every_trial_and_leaves_the_workloads_alone(tmp_path):
    tokenizer = words_tokenizer()
    items = quality_items(tokenizer, tmp_path)

    assert items == quality_items(tokenizer, tmp_path)
    kinds = [item.kind for item in items]
    assert (kinds.count("text"), kinds.count("open"), kinds.count("task")) == (32, 16, 60)
    assert all(len(item.output) == 48 for item in items if item.kind == "text")
    assert all(item.tokens == len(item.output) > 0 for item in items if item.kind == "task")


def test_an_engine_without_language_gets_random_ids_and_no_tasks(tmp_path):
    items = quality_items(None, tmp_path)

    assert {item.kind for item in items} == {"text", "open"}
    assert all(0 < token < 500 for item in items for token in item.prompt)


def words_tokenizer() -> bytes:
    """Bytes as tokens, which every text can be written in."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    assert json.loads(made.to_str())
    return made.to_str().encode()
