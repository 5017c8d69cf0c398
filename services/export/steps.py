"""The winners that a release is made of, oldest first: each a release over the one before."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from protos.candidate import Scalar
from protos.release import Release
from protos.trial import Interval
from services.blobs import Blobs
from services.export.errors import ExportError
from services.export.patches import Contents
from services.report.record import CampaignRecord, CandidateRecord

Installed = Callable[[str], bytes | None]
"""The content of a file of the engine as it is installed here; None where it has no such file."""


@dataclass(frozen=True)
class Step:
    """One winner: what it made of the files, and of the knobs."""

    release: Release
    title: str
    header: tuple[str, ...]
    before: Contents
    after: Contents
    knobs: dict[str, Scalar]

    @property
    def changes_files(self) -> bool:
        return any(self.before[path] != self.after[path] for path in self.before)


class Trees:
    """Contents of releases' files. A path that a release lacks is as the engine was installed."""

    def __init__(self, blobs: Blobs, installed: Installed) -> None:
        self._blobs, self._installed = blobs, installed

    def content(self, release: Release, path: str) -> bytes | None:
        """Raises BlobError, and whatever looking at what is installed raises."""
        digest = release.files.get(path)
        return self._blobs.get(digest) if digest else self._installed(path)


def steps(record: CampaignRecord, release: Release, trees: Trees, prefix: str) -> list[Step]:
    """From the start to `release`, the files under `prefix` only. Raises ExportError."""
    chain = [release]
    while (parent := chain[-1].parent) is not None:
        known = record.release_of(parent)
        if known is None or known in chain:
            raise ExportError(f"release {chain[-1].id} is made from {parent}, which is not here")
        chain.append(known)
    chain.reverse()
    return [_step(record, before, after, trees, prefix) for before, after in pairwise(chain)]


def _step(
    record: CampaignRecord, before: Release, after: Release, trees: Trees, prefix: str
) -> Step:
    paths = [
        path
        for path in sorted(before.files.keys() | after.files.keys())
        if path.startswith(prefix) and before.files.get(path) != after.files.get(path)
    ]
    known = record.candidates.get(after.candidate or "")
    title = known.candidate.label if known and known.candidate.label else f"release {after.number}"
    knobs = {k: v for k, v in sorted(after.knobs.items()) if before.knobs.get(k) != v}
    return Step(
        after,
        title,
        (title, f"Release {after.id} over {before.id}.", *_about(record, known, after)),
        {path: trees.content(before, path) for path in paths},
        {path: trees.content(after, path) for path in paths},
        knobs,
    )


def _about(record: CampaignRecord, known: CandidateRecord | None, release: Release) -> list[str]:
    """Who proposed it and why, and what each trial that the release stands on measured."""
    lines = []
    if known is not None:
        maker = known.candidate.strategy or known.candidate.proposer or "unknown"
        lines.append(f"Candidate {known.candidate.id}, proposed by {maker}.")
        if known.candidate.rationale:
            lines.append(f"Why: {known.candidate.rationale}")
    for name in release.evidence:
        trial = record.trials.get(name)
        if trial and trial.verdict and trial.verdict.interval:
            lines.append(f"{trial.lease.tier} trial: {measured(trial.verdict.interval)}")
    return lines


def measured(interval: Interval) -> str:
    """`output_tok_s 1.52x (1.45 to 1.60), 8 starts`; a bound the data don't give reads `?`."""
    low, high = (f"{b:.2f}" if b is not None else "?" for b in (interval.low, interval.high))
    counted = f"{interval.units} {interval.unit}"
    return f"{interval.metric} {interval.estimate:.2f}x ({low} to {high}), {counted}"
