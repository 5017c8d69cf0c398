"""Targets, objectives and budgets are checked where they are made."""

from __future__ import annotations

import math

import msgspec
import pytest

from protos.target import Budget, Objective, Workload, parse_duration_s, parse_objective


def test_an_objective_reads_as_people_write_it() -> None:
    objective = parse_objective("output_tok_s subject to ttft_ms_p99 <= 300 and requests_s >= 2")
    assert objective.metric == "output_tok_s"
    assert [(x.metric, x.at_most, x.at_least) for x in objective.limits] == [
        ("ttft_ms_p99", 300.0, None),
        ("requests_s", None, 2.0),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tokens", "unknown metric 'tokens'"),
        ("output_tok_s subject to ttft < 3", "cannot read the limit"),
        ("output_tok_s subject to speed <= 3", "unknown metric 'speed'"),
    ],
)
def test_a_bad_objective_says_what_to_write(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_objective(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400)]
)
def test_durations_take_units(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["0", "0m", "-3s", "soon", "5 days", ""])
def test_a_budget_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="for example"):
        parse_duration_s(text)


def test_non_finite_numbers_are_refused_when_made_and_when_decoded() -> None:
    with pytest.raises(ValueError, match="wall_s must be finite"):
        Budget(wall_s=math.inf)
    with pytest.raises(ValueError, match="params must be finite"):
        Workload("single", params={"rate": math.nan})
    with pytest.raises(msgspec.ValidationError, match="unknown output class"):
        msgspec.json.decode(
            b'{"type":"objective","metric":"output_tok_s","output_class":"good"}', type=Objective
        )
