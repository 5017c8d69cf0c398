"""Verdicts derived again from raw data alone: identical to the last bit, or the difference said."""

import random

import msgspec
import pytest

from evaluator.again import compare, figures, table
from evaluator.court import Court
from evaluator.recompute import ScriptMaker
from evaluator.seeds import seed_of
from protos.codec import encode
from protos.events import TrialEnded
from protos.messages import JudgeTrial, RevealScript
from protos.trial import Evidence
from services.blobs import MemoryBlobs
from tests.evaluator.made_trials import MadeHost, make_lease

SECRET = b"s" * 32


class Case:
    """One trial that was measured, judged and recorded."""

    def __init__(self, folder, effect: float) -> None:
        self.blobs = MemoryBlobs()
        self.court = Court(self.blobs, folder, SECRET)
        self.maker = ScriptMaker(self.blobs, folder)
        self.lease = make_lease(trial=f"t{random.Random(effect).randrange(10**9)}")
        script = self.court.script(RevealScript(self.lease, None, 2048))
        assert script.seed == seed_of(SECRET, self.lease.trial, self.lease.epoch)
        self.made = MadeHost(effect).run(self.lease, script)
        self.made = msgspec.structs.replace(self.made, script=self.blobs.put(encode(script)))
        self.event = self.judged(self.made)

    def judged(self, evidence: Evidence) -> TrialEnded:
        digest = self.blobs.put(encode(evidence))
        epoch = self.lease.epoch
        verdict = self.court.judge(JudgeTrial(self.lease.trial, epoch, digest), self.lease)
        return TrialEnded(self.lease.campaign, epoch, verdict)

    def again(self, event=None, lease=None):
        return compare(event or self.event, lease or self.lease, self.blobs, self.maker)


@pytest.mark.parametrize("effect", [-0.3, 0.0, 0.01, 0.2])
def test_a_verdict_is_the_same_to_the_last_bit_without_the_secret(tmp_path, effect):
    found = Case(tmp_path, effect).again()

    assert found.identical, found.detail
    assert found.again == found.recorded


def test_a_figure_of_the_verdict_that_differs_in_its_last_digit_is_found(tmp_path):
    case = Case(tmp_path, 0.2)
    other = msgspec.structs.replace(
        case.event.verdict, device_s=case.event.verdict.device_s + 1e-15
    )

    found = case.again(msgspec.structs.replace(case.event, verdict=other))

    assert not found.identical
    assert found.detail.startswith("device_s was")


def test_a_sample_that_was_made_faster_changes_the_verdict(tmp_path):
    case = Case(tmp_path, 0.02)
    blocks = [
        msgspec.structs.replace(block, wall_ns=block.wall_ns + 1) if block.side == "A" else block
        for block in case.made.blocks
    ]
    digest = case.blobs.put(encode(msgspec.structs.replace(case.made, blocks=tuple(blocks))))
    verdict = msgspec.structs.replace(case.event.verdict, evidence=digest)

    found = case.again(msgspec.structs.replace(case.event, verdict=verdict))

    assert "metrics_a was" in found.detail or "turns" in found.detail or "interval" in found.detail


def test_evidence_of_another_lease_than_was_granted_stands_for_nothing(tmp_path):
    case = Case(tmp_path, 0.2)

    found = case.again(lease=msgspec.structs.replace(case.lease, host="other"))

    assert found.again is None
    assert "isn't the one that the ledger granted" in found.detail


def test_evidence_that_is_gone_is_a_difference_and_no_crash(tmp_path):
    case = Case(tmp_path, 0.2)
    verdict = msgspec.structs.replace(case.event.verdict, evidence="0" * 64)

    found = case.again(msgspec.structs.replace(case.event, verdict=verdict))

    assert not found.identical
    assert "is not here" in found.detail


def test_the_table_and_the_last_line_name_what_differs(tmp_path):
    same, other = Case(tmp_path, 0.2), Case(tmp_path, -0.2)
    torn = other.again(lease=msgspec.structs.replace(other.lease, host="x"))

    said = figures("demo", [same.again(), torn])

    assert (said["verdicts"], said["identical"], said["differing"]) == (2, 1, 1)
    assert said["differing_trials"] == [other.lease.trial]
    assert any("DIFFERS" in line for line in table([same.again(), torn]))
