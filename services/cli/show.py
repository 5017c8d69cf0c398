"""`perpetune show CANDIDATE`: one candidate's change, verdicts, evidence and trace."""

import argparse

from rich.console import Console
from rich.text import Text

from services.blobs import DirectoryBlobs
from services.cli import words
from services.cli.errors import UsageError
from services.cli.load import load
from services.local.run_folder import RunFolder, find, listing, suggest
from services.report.change import candidate_diff, knob_lines
from services.report.evidence import numbers, read_evidence
from services.report.record import CampaignRecord, CandidateRecord, TrialRecord
from services.report.spans import processes, spans_of, tree

DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A candidate's id, the start of one, or its label."""
    parser.add_argument("candidate", help="id (or its first characters), or label")
    parser.add_argument("--campaign", help="name or run folder (default: newest that has it)")


def run(options: argparse.Namespace) -> int:
    """Print everything that is known of the candidate."""
    folder, record, known = find_candidate(options.candidate, options.campaign)
    blobs = DirectoryBlobs(folder.blobs)
    console = Console(soft_wrap=True, highlight=False)
    for line in head(known):
        console.print(Text(line))
    _print_change(console, record, known, blobs)
    for name in known.trials:
        _print_trial(console, record.trials[name], blobs)
    _print_trace(console, folder, known)
    return 0


def head(known: CandidateRecord) -> list[str]:
    """Who made it and what became of it before any trial."""
    candidate = known.candidate
    lines = [
        f"{candidate.id}  {candidate.label}",
        f"by {candidate.strategy or candidate.proposer or 'unknown'} (arm {candidate.arm}), "
        f"on release {candidate.base}, class {candidate.output_class}",
    ]
    if candidate.rationale:
        lines.append(f"why: {candidate.rationale}")
    if known.refused is not None:
        lines.append(f"refused: {known.refused}")
    if known.check is not None:
        check = known.check
        said = f"ok, rung {check.rung}, {check.scope}" if check.ok else f"invalid: {check.reason}"
        lines.append(f"check: {said} ({check.check_s:.2f} s, build {check.build_s:.2f} s)")
    if known.rebased is not None:
        onto = known.rebased.onto
        lines.append(f"rebased: {f'onto {onto}' if onto else f'given up, {known.rebased.reason}'}")
    return lines


def _print_change(
    console: Console, record: CampaignRecord, known: CandidateRecord, blobs: DirectoryBlobs
) -> None:
    base = record.release_of(known.candidate.base)
    if base is None:
        console.print(Text(f"its base {known.candidate.base} is not in this ledger"))
        return
    for line in knob_lines(base.knobs, known.candidate.knobs):
        console.print(Text(f"knob {line}"))
    for build in known.candidate.builds:
        flags = " ".join(build.flags)
        console.print(Text(f"builds lib{build.name}.so from {', '.join(build.sources)} ({flags})"))
    for line in candidate_diff(known.candidate, base, blobs):
        console.print(Text(line, style=DIFF_STYLES.get(line[:1], "")))


def _print_trial(console: Console, trial: TrialRecord, blobs: DirectoryBlobs) -> None:
    lease, verdict = trial.lease, trial.verdict
    console.print()
    title = f"{lease.tier} trial {lease.trial}"
    if verdict is None:
        why = trial.void_reason or ("; ".join(trial.lost) or "not ended")
        console.print(Text(f"{title}: no verdict ({why})"))
        return
    text = Text(f"{title}: ")
    text.append(words.verdict(verdict), style=words.STYLES[verdict.word])
    console.print(text)
    if verdict.interval is not None and verdict.reason:
        console.print(Text(f"  {verdict.reason}"))
    evidence = read_evidence(blobs, verdict)
    if evidence is None:
        console.print(Text(f"  evidence {verdict.evidence[:12]} is no longer here"))
        return
    for line in numbers(evidence):
        console.print(Text(f"  {line}"))
    console.print(Text(f"  evidence: {blobs.path(verdict.evidence)}"))


def _print_trace(console: Console, folder: RunFolder, known: CandidateRecord) -> None:
    spans = spans_of(folder.traces, known.trace_ids)
    console.print()
    if not spans:
        console.print(Text("trace: no span of it was recorded"))
        return
    took = f"{len(spans)} spans over {', '.join(processes(spans))}"
    console.print(Text(f"trace {', '.join(known.trace_ids)}: {took}"))
    began_ns = spans[0].start_ns
    for depth, span in tree(spans):
        at_s = (span.start_ns - began_ns) / 1e9
        failed = f"  FAILED: {span.failed}" if span.failed else ""
        line = f"  {at_s:8.3f} s {'  ' * depth}{span.process} {span.name}"
        console.print(Text(f"{line} {span.duration_ns / 1e6:.1f} ms{failed}"))


def find_candidate(
    name: str, campaign: str | None
) -> tuple[RunFolder, CampaignRecord, CandidateRecord]:
    """The one candidate that `name` fits, in the newest run that has it. Raises UsageError."""
    folders = [find(campaign)] if campaign else list(reversed(listing()))
    seen: list[str] = []
    for folder in folders:
        if not folder.has_ledger():
            continue
        record = load(folder)
        hits = matching(record, name)
        if len(hits) == 1:
            return folder, record, hits[0]
        if hits:
            ids = ", ".join(known.candidate.id for known in hits[:8])
            raise UsageError(f"{name!r} fits {len(hits)} candidates: {ids}")
        seen += record.candidates
    if not folders:
        raise UsageError("no campaign in runs/ yet; start one with: perpetune tune")
    raise UsageError(f"no candidate {name!r}; {suggest(name, seen)}")


def matching(record: CampaignRecord, name: str) -> list[CandidateRecord]:
    """Candidates whose id starts with `name`; else those whose label is it; else has it in it."""
    every = list(record.candidates.values())
    for fits in (
        [known for known in every if known.candidate.id.startswith(name)],
        [known for known in every if known.candidate.label == name],
        [known for known in every if name.lower() in known.candidate.label.lower()],
    ):
        if fits:
            return fits
    return []
