"""The quality suite on the default model: rounding passes, coarse weights fail, in steps too."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from model_quality import coarser, measured, of_start, text_losses

from engine_host.engines.slim import Engine
from engine_host.engines.slim.weights import Weights
from evaluator.quality import MARGIN_NATS, Suite, suite, upper_of
from evaluator.quality_set import quality_items
from protos.trial import Quality, QualityItem


@dataclass(frozen=True)
class Case:
    """The default model, the set in its tokens, and what the start says in both precisions."""

    weights: Weights
    reference: Engine
    items: tuple[QualityItem, ...]
    start: Quality
    a: Quality

    def judged(self, levels: int) -> Suite:
        """The suite on weights of so many steps on each side of zero a row."""
        engine = Engine(coarser(self.weights, levels), {})
        b = measured(engine, self.reference, self.items, "B")
        return suite([self.a, b, self.start], self.items)

    def losses(self, way: float) -> list[float]:
        """Of half the passages, by weights that are so far on the way to five bits."""
        texts = [item for item in self.items if item.kind == "text"][::2]
        held = msgspec.structs.replace(self.start, per_passage_nll=self.start.per_passage_nll[::2])
        return text_losses(Engine(coarser(self.weights, 15, way), {}), held, texts)


@pytest.fixture(scope="module")
def case(subject_of: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory) -> Case:
    subject = subject_of("smollm2")
    tokenizer = (Path(subject.folder) / "tokenizer.json").read_bytes()
    items = quality_items(tokenizer, tmp_path_factory.mktemp("set"))
    reference = Engine(subject.weights, {}, "float32")
    start = of_start(reference, items)
    a = measured(Engine(subject.weights, {}), reference, items, "A")
    return Case(subject.weights, reference, items, start, a)


def test_the_start_itself_passes_and_answers_a_good_part_of_the_tasks_but_not_all(case: Case):
    found = suite([case.a, msgspec.structs.replace(case.a, side="B"), case.start], case.items)

    assert found.ok, found.reason
    tasks = found.measures[-1]
    assert 0.3 < tasks.start < 0.9
    assert abs(tasks.a - tasks.start) < 0.1


def test_int8_weights_pass_and_ones_of_five_bits_fail_every_measure_but_the_tasks(case: Case):
    assert case.judged(127).ok

    coarse = case.judged(15)
    assert [one.ok for one in coarse.measures[:3]] == [False, False, False]
    assert "beyond its margins" in coarse.reason


@pytest.mark.timeout(240)
def test_twenty_slightly_coarser_weights_in_a_row_cannot_add_up(case: Case):
    against_start = against_last = 0.0
    last, accepted = case.losses(0.0), 0
    for step in range(1, 21):
        losses = case.losses(0.03 * step)
        lost = sum(losses) / len(losses)
        if upper_of(losses) <= MARGIN_NATS:
            against_start = lost
        if upper_of([x - y for x, y in zip(losses, last, strict=True)]) <= MARGIN_NATS:
            against_last, last, accepted = lost, losses, accepted + 1

    assert against_start <= MARGIN_NATS
    assert accepted >= 18  # each is hardly worse than the one before,
    assert against_last > 2 * MARGIN_NATS  # and so the whole of it is
