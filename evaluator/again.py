"""`python -m evaluator recompute`: derive every verdict of a run again, and compare bit for bit.

Nothing but the ledger and its blobs goes in: no cache, no secret, no engine. A verdict counts as
identical when its wire bytes are; a voided one is derived like the others, it was judged once.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evaluator.blocks import EvidenceError
from evaluator.recompute import Reader, ScriptMaker, judge_again, read_evidence, read_script
from protos.codec import encode
from protos.events import TrialEnded, TrialGranted
from protos.trial import Lease, Verdict
from services.blobs import DirectoryBlobs
from services.errors import BlobError, PerpetuneError
from services.ledger import Recorded
from services.local.run_folder import RunFolder
from services.local.system import open_ledger


@dataclass(frozen=True)
class Compared:
    """One recorded verdict beside the one derived again; `detail` says what differs."""

    trial: str
    candidate: str | None
    tier: str
    recorded: str
    again: str | None
    detail: str = ""

    @property
    def identical(self) -> bool:
        return not self.detail


class Granted:
    """Which lease each epoch granted; filled in the ledger's order."""

    def __init__(self) -> None:
        self._leases: dict[int, Lease] = {}

    def note(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, TrialGranted):
            self._leases[recorded.seq] = recorded.event.lease

    def lease(self, epoch: int) -> Lease | None:
        return self._leases.get(epoch)


def compare(
    event: TrialEnded, granted: Lease | None, blobs: Reader, maker: ScriptMaker
) -> Compared:
    """One recorded verdict against what its evidence gives. A difference is a finding, no error."""
    recorded = event.verdict
    try:
        again = _derive(event, granted, blobs, maker)
    except (EvidenceError, BlobError) as error:
        return _compared(recorded, None, f"no verdict stands on its evidence: {error}")
    if encode(again) == encode(recorded):
        return _compared(recorded, again.word, "")
    return _compared(recorded, again.word, "; ".join(_differences(recorded, again)))


def _derive(event: TrialEnded, granted: Lease | None, blobs: Reader, maker: ScriptMaker) -> Verdict:
    recorded = event.verdict
    evidence = read_evidence(blobs, recorded.evidence)
    if (evidence.trial, evidence.epoch) != (recorded.trial, event.epoch):
        raise EvidenceError(f"it is of trial {evidence.trial}, epoch {evidence.epoch}")
    if granted is None or msgspec.structs.replace(granted, epoch=event.epoch) != evidence.lease:
        raise EvidenceError("its lease isn't the one that the ledger granted")
    script = read_script(blobs, evidence)
    return judge_again(evidence, script, recorded.evidence, maker)


def _compared(recorded: Verdict, again: str | None, detail: str) -> Compared:
    return Compared(recorded.trial, recorded.candidate, recorded.tier, recorded.word, again, detail)


def _differences(recorded: Verdict, again: Verdict) -> Iterable[str]:
    for name in recorded.__struct_fields__:
        before, after = getattr(recorded, name), getattr(again, name)
        if before != after:
            yield f"{name} was {before!r}, is {after!r}"


async def recompute_run(folder: RunFolder, candidate: str | None) -> list[Compared]:
    """Every verdict of the run's campaign (of one candidate, if named), in the ledger's order."""
    blobs, granted, found = DirectoryBlobs(folder.blobs), Granted(), list[Compared]()
    with tempfile.TemporaryDirectory(prefix="perpetune-again-") as texts:
        maker = ScriptMaker(blobs, Path(texts))  # a cache left by the evaluator proves nothing
        async with open_ledger(folder) as ports:
            async for recorded in ports.ledger.read():
                granted.note(recorded)
                event = recorded.event
                if not isinstance(event, TrialEnded) or event.campaign != folder.campaign:
                    continue
                if candidate is None or event.verdict.candidate == candidate:
                    lease = granted.lease(event.epoch)
                    found.append(await asyncio.to_thread(compare, event, lease, blobs, maker))
    return found


def table(found: Sequence[Compared]) -> list[str]:
    """A line a verdict, with what differs under it."""
    lines = [f"{'trial':<14} {'candidate':<14} {'tier':<5} {'recorded':<13} {'again':<13}"]
    for one in found:
        same = "identical" if one.identical else "DIFFERS"
        lines.append(
            f"{one.trial:<14} {one.candidate or '-':<14} {one.tier:<5} {one.recorded:<13} "
            f"{one.again or 'none':<13} {same}"
        )
        if one.detail:
            lines.append(f"{'':<14} {one.detail}")
    return lines


def figures(campaign: str, found: Sequence[Compared]) -> dict[str, object]:
    """The last line: how many verdicts, how many identical, and which are not."""
    differing = [one.trial for one in found if not one.identical]
    return {
        "campaign": campaign,
        "verdicts": len(found),
        "identical": len(found) - len(differing),
        "differing": len(differing),
        "differing_trials": differing,
    }


def main(argv: Sequence[str]) -> int:
    """0: all identical; 1: one differs; 2: there is nothing to derive, or it can't be read."""
    parser = argparse.ArgumentParser(prog="python -m evaluator recompute", allow_abbrev=False)
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--candidate", help="only this candidate's verdicts (whole id)")
    options = parser.parse_args(argv)
    folder = RunFolder(options.run)
    try:
        found = asyncio.run(recompute_run(folder, options.candidate))
    except PerpetuneError as error:
        print(f"perpetune: {error}", file=sys.stderr)
        return 2
    if not found:
        whose = options.candidate or folder.campaign
        print(f"perpetune: there is no verdict of {whose} to derive again", file=sys.stderr)
        return 2
    print("\n".join(table(found)))
    said = figures(folder.campaign, found)
    print(f"{said['identical']} of {said['verdicts']} verdicts identical, bit for bit")
    print(json.dumps(said))
    return 0 if all(one.identical for one in found) else 1
