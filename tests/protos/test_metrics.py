"""Serving metrics of a block, against figures worked out by hand."""

import math

import pytest

from protos.metrics import failures, log_ratio, metric_value, pair_ratio, percentile
from protos.target import METRICS
from protos.trial import BlockSample, Request, RequestSample

MS = 1_000_000


def sample(id: int, sent_ms: int, *token_ms: int, error: str | None = None) -> RequestSample:
    return RequestSample(
        id,
        sent_ms * MS,
        tuple(range(len(token_ms))),
        tuple(t * MS for t in token_ms),
        "length" if error is None else None,
        error,
    )


def block(*requests: RequestSample, wall_ms: int = 100) -> BlockSample:
    return BlockSample(0, 0, "A", 0, wall_ms * MS, requests)


TWO = block(sample(1, 0, 10, 20, 40), sample(2, 5, 25, 100))


def test_throughput_counts_output_tokens_over_the_wall_time_of_the_block():
    assert metric_value("output_tok_s", TWO) == pytest.approx(50.0)
    assert metric_value("requests_s", TWO) == pytest.approx(20.0)


def test_latencies_count_from_the_scheduled_send():
    assert metric_value("ttft_ms_p50", TWO) == pytest.approx(15.0)
    assert metric_value("e2e_ms_p50", TWO) == pytest.approx(67.5)


def test_tpot_spreads_the_time_after_the_first_token_over_the_others():
    assert metric_value("tpot_ms_p50", TWO) == pytest.approx((15.0 + 75.0) / 2)


def test_itl_pools_the_gaps_of_all_requests():
    assert metric_value("itl_ms_p50", TWO) == pytest.approx(20.0)


def test_a_one_token_output_has_no_tpot():
    assert metric_value("tpot_ms_p50", block(sample(1, 0, 10))) is None


@pytest.mark.parametrize("name", METRICS)
def test_a_failed_request_leaves_no_metric_standing(name: str):
    assert metric_value(name, block(sample(1, 0, 10, 20), sample(2, 0, error="broke"))) is None


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_of_the_contract_has_a_value(name: str):
    assert metric_value(name, TWO) is not None


def test_an_unknown_metric_is_refused_by_name():
    with pytest.raises(ValueError, match="speed"):
        metric_value("speed", TWO)


def test_a_ratio_is_positive_when_b_is_better_whatever_the_direction():
    assert log_ratio("output_tok_s", 50.0, 100.0) == pytest.approx(math.log(2))
    assert log_ratio("ttft_ms_p50", 100.0, 50.0) == pytest.approx(math.log(2))


def test_a_pair_whose_side_has_no_value_has_no_ratio():
    assert pair_ratio("output_tok_s", TWO, block(sample(1, 0, error="broke"))) is None
    assert pair_ratio("output_tok_s", TWO, TWO) == 0.0


def test_percentiles_interpolate_between_order_statistics():
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == pytest.approx(2.5)
    assert percentile([1.0, 2.0], 99) == pytest.approx(1.99)
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "never answered"),
        ((sample(1, 0, error="broke"),), "broke"),
        ((RequestSample(1, 0, (5,), (1,)),), "never finished"),
        ((sample(1, 0, 10),), "1 of 2 tokens"),
        ((RequestSample(1, 0, (5, 6), (1,), "length"),), "without a time"),
    ],
)
def test_a_request_that_came_short_is_named(given: tuple[RequestSample, ...], said: str):
    (line,) = failures(block(*given), [Request(1, (1,), 2)])
    assert line.startswith("request 1: ")
    assert said in line


def test_complete_requests_are_no_failures():
    assert failures(TWO, [Request(1, (1,), 3), Request(2, (1,), 2)]) == []
