import json

import pytest

from recorded_campaign import CAMPAIGN, Recording, finished, paused
from services.report.record import fold
from services.report.summary import summarise, to_json

KEYS = {
    "target",
    "workload",
    "objective",
    "start",
    "release",
    "gain",
    "random_arm",
    "verdicts",
    "trials",
    "starts",
    "spend",
    "wall_s",
    "releases",
}


def summary_of(recording):
    return json.loads(to_json(summarise(fold(CAMPAIGN, recording.events))))


def test_the_summary_has_every_key_that_is_promised():
    summary = summary_of(finished())

    assert summary.keys() >= KEYS
    assert summary["gain"].keys() >= {"metric", "estimate", "low", "high", "denominator"}
    assert summary["random_arm"].keys() >= {"metric", "estimate", "low", "high", "denominator"}
    assert summary["starts"]["hot"].keys() == {"count", "p50_s"}
    assert summary["target"]["model"] == "smollm2"


def test_the_gain_is_the_closing_interval_and_names_its_denominator():
    summary = summary_of(finished())

    assert summary["gain"]["low"] <= summary["gain"]["estimate"] <= summary["gain"]["high"]
    assert "start release" in summary["gain"]["denominator"]
    assert "8 starts" in summary["gain"]["denominator"]
    assert summary["start"]["output_tok_s"] < summary["release"]["output_tok_s"]


def test_without_a_closing_measurement_there_is_no_gain_rather_than_a_number():
    summary = summary_of(paused())

    assert summary["gain"] is None
    assert summary["start"] == {}
    assert len(summary["releases"]) == 3


def test_a_campaign_that_never_opened_has_no_summary():
    with pytest.raises(ValueError, match="never opened"):
        summarise(fold(CAMPAIGN, Recording().events))
