"""The end of a campaign at the command line: report files, the table, what to do next."""

import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from protos.target import METRICS
from services.blobs import DirectoryBlobs
from services.cli import words
from services.local.run_folder import RUNS, RunFolder
from services.report import said
from services.report.record import CampaignRecord
from services.report.summary import Gain, Summary, summarise


def close(folder: RunFolder, record: CampaignRecord, interrupted: bool) -> int:
    """Write the report, print the table, say what next. Returns the command's exit code."""
    if record.state == "refused" or record.opening is None:
        reason = record.reason or "the scheduler never opened the campaign; see its log in "
        print(f"perpetune: {reason}{'' if record.reason else folder.logs}", file=sys.stderr)
        return 2
    # Imported only here: it brings matplotlib, which a running campaign should not wait for.
    from services.report.write import write_report

    summary = summarise(record)
    write_report(folder.path, record, summary, DirectoryBlobs(folder.blobs))
    print_table(folder, summary)
    if record.state == "finished":
        return 0
    state = "paused" if record.state == "paused" else "ended before it could pause, nothing is lost"
    print(f"{state}; {resume_line(folder)}")
    return 130 if interrupted else 1


def resume_line(folder: RunFolder) -> str:
    """The exact command that goes on with this campaign."""
    return f"resume with: perpetune tune --resume {short_name(folder)}"


def short_name(folder: RunFolder) -> str:
    """What finds this run again from here: its campaign, or its path where that wouldn't."""
    usual = folder.path.parent == RUNS and folder.path.name == folder.campaign
    return folder.campaign if usual else str(folder.path)


def print_table(folder: RunFolder, summary: Summary) -> None:
    """The result as a table: release against start, the random arm, verdicts, where to look."""
    table = Table(title=f"{summary.campaign}: {summary.state}", title_justify="left", box=None)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows(summary):
        table.add_row(name, escape(value))
    name = short_name(folder)
    table.add_row("report", str(folder.report))
    table.add_row("numbers", str(folder.summary))
    if summary.releases[1:]:
        best = summary.releases[-1].candidate
        table.add_row("next", f"perpetune show {best} --campaign {name}")
    Console(soft_wrap=not sys.stdout.isatty()).print(table)


def rows(summary: Summary) -> list[tuple[str, str]]:
    """The table's rows as plain text."""
    target = summary.target
    lines = [
        (
            "tuned",
            f"{target.engine} with {target.model} ({target.precision}, {target.device_class})",
        ),
        ("for", f"{summary.objective.metric} on workload {summary.workload.name}"),
        *_gain("release vs start", summary.gain, no_release(summary)),
    ]
    lines += [("", line) for line in _metrics(summary)]
    lines += _gain("random arm vs start", summary.random_arm, "no gain of it to measure")
    lines.append(("verdicts", words.counts(summary.verdicts)))
    lines.append(("trials", ", ".join(f"{n} {tier}" for tier, n in summary.trials.items()) or "0"))
    lines += _block("quality", said.quality(summary))
    lines += _block("fast vs slow", said.tiers(summary))
    lines += _block("canaries", said.canaries(summary))
    lines.append(("no-gain releases", said.false_promotions(summary)))
    if summary.lost_trials:
        lines.append(("lost", words.losses(summary.lost_trials)))
    for release in summary.releases[1:]:
        lines.append((f"release {release.number}", f"{release.label} ({release.candidate})"))
    spent = (
        f"{words.duration(summary.wall_s)} wall, {words.duration(summary.spend.device_s)} engine"
    )
    lines.append(("spent", spent))
    if summary.reason:
        lines.append(("ended", summary.reason))
    return lines


def _block(name: str, lines: list[str]) -> list[tuple[str, str]]:
    return [(name if not at else "", line) for at, line in enumerate(lines)]


def no_release(summary: Summary) -> str:
    """Why there is no gain to print."""
    if summary.state != "finished":
        return "not measured yet: that is the campaign's last step"
    if len(summary.releases) <= 1:
        return "no release: nothing was provably faster, the start stays"
    return "not measured: the closing measurement gave no verdict"


def _gain(name: str, gain: Gain | None, otherwise: str) -> list[tuple[str, str]]:
    if gain is None:
        return [(name, otherwise)]
    low = "?" if gain.low is None else f"{gain.low:.3f}"
    high = "?" if gain.high is None else f"{gain.high:.3f}"
    value = f"{words.ratio(gain.estimate)} [{low}, {high}]"
    return [(name, value), ("", f"of {gain.denominator}")]


def _metrics(summary: Summary) -> list[str]:
    """The objective's metric, then the limits': start -> release."""
    wanted = [summary.objective.metric, *(limit.metric for limit in summary.objective.limits)]
    names = [name for name in METRICS if name in wanted]
    return [
        f"{name}: {words.metric(name, summary.start[name])} -> "
        f"{words.metric(name, summary.release[name])}"
        for name in names
        if name in summary.start and name in summary.release
    ]
