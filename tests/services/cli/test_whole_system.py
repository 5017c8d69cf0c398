"""The command over the real rooms, a real broker and the fake engine's real processes."""

import json

import pytest

from services.cli.load import load
from services.local.run_folder import RunFolder


@pytest.fixture
def tuned(real_door):
    done = real_door("tune", "--engine", "fake", "--model", "none", "--budget", "20s")
    assert done.returncode == 0, done.stderr
    return real_door, done.stdout


def test_a_real_campaign_judges_candidates_and_one_trace_joins_its_four_rooms(tuned):
    door, said = tuned
    folder = door.cwd / "runs" / door.campaign()
    summary = json.loads((folder / "summary.json").read_text())

    assert summary["state"] == "finished"
    assert sum(summary["verdicts"].values()) > 0, said
    assert summary["trials"]["fast"] > 0
    assert summary["lost_trials"] == {}
    assert "<!doctype html>" in (folder / "report.html").read_text()

    judged = load(RunFolder(folder)).judged()[0].lease.side_b.candidate
    shown = door("show", judged).stdout
    for room in ("proposer[", "scheduler[", "evaluator[", "engine_host["):
        assert room in shown

    again = door("recompute")
    figures = json.loads(again.stdout.splitlines()[-1])
    assert again.returncode == 0, again.stdout
    assert figures["identical"] == figures["verdicts"] == sum(summary["trials"].values())
    assert door("recompute", judged).returncode == 0

    trail = door("ledger", "verify")
    assert trail.returncode == 0, trail.stdout
    assert json.loads(trail.stdout.splitlines()[-1])["records"] >= 2  # the start, and the end
