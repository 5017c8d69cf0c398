"""Seeds, scripts and verdicts of granted trials: what the secret is needed for. Blocks on blobs."""

from pathlib import Path

import msgspec

from evaluator.blocks import EvidenceError
from evaluator.recompute import Reader, ScriptMaker, judge_again, read_evidence, read_script
from evaluator.seeds import commitment_of, seed_of
from protos.messages import JudgeTrial, RevealScript
from protos.trial import Lease, Script, Verdict


class Court:
    """`folder` keeps the texts' token ids; `secret` is what every seed follows from."""

    def __init__(self, blobs: Reader, folder: Path, secret: bytes) -> None:
        self.scripts = ScriptMaker(blobs, folder)
        self._blobs = blobs
        self._secret = secret

    def commitment(self, trial: str, epoch: int) -> str:
        """What may be known of a grant's seed before its trial is ready."""
        return commitment_of(self._seed(trial, epoch))

    def script(self, ask: RevealScript) -> Script:
        """The script of a granted lease. Raises WorkloadError or BlobError."""
        seed = self._seed(ask.lease.trial, ask.lease.epoch)
        return self.scripts.script(ask.lease, seed, ask.tokenizer, ask.max_context)

    def judge(self, command: JudgeTrial, granted: Lease) -> Verdict:
        """The verdict on the evidence of a grant. Raises EvidenceError or BlobError."""
        evidence = read_evidence(self._blobs, command.evidence)
        if (evidence.trial, evidence.epoch) != (command.trial, command.epoch):
            raise EvidenceError(f"it is of trial {evidence.trial}, epoch {evidence.epoch}")
        if _at(evidence.lease, command.epoch) != _at(granted, command.epoch):
            raise EvidenceError("its lease isn't the one that was granted")
        script = read_script(self._blobs, evidence)
        if script is not None and script.seed != self._seed(command.trial, command.epoch):
            raise EvidenceError("its seed isn't the one of this grant")
        return judge_again(evidence, script, command.evidence, self.scripts)

    def _seed(self, trial: str, epoch: int) -> str:
        return seed_of(self._secret, trial, epoch)


def _at(lease: Lease, epoch: int) -> Lease:
    """A lease as it is after its grant: the event itself can't hold its own sequence."""
    return msgspec.structs.replace(lease, epoch=epoch)
