"""`perpetune status [CAMPAIGN]`: what a campaign is doing, or how it ended."""

import argparse
import asyncio
import time
from collections import Counter

from protos.messages import AskStatus, CampaignStatus
from services.cli import words
from services.cli.closing import resume_line, short_name
from services.cli.load import load
from services.cli.progress import Progress
from services.errors import TroubleError
from services.local.run_folder import RunFolder, find
from services.local.system import open_store
from services.report.record import FINAL, CampaignRecord


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A campaign's name or run folder; the newest one without."""
    parser.add_argument("campaign", nargs="?", help="name or run folder (default: the newest)")


def run(options: argparse.Namespace) -> int:
    """Print one line a fact. 0 when the campaign runs or finished, 1 otherwise."""
    folder = find(options.campaign)
    url = folder.live_url()
    progress = Progress(load(folder), status=asyncio.run(_ask(folder, url)) if url else None)
    for name, value in lines(folder, progress, running=url is not None):
        print(f"{name:<12} {value}")
    return 0 if url or progress.record.state == "finished" else 1


def lines(folder: RunFolder, progress: Progress, running: bool) -> list[tuple[str, str]]:
    """What to say of a campaign, as (name, text)."""
    record = progress.record
    facts = [
        ("campaign", f"{record.campaign} in {folder.path}"),
        ("state", _state(record, running)),
    ]
    if running:
        facts.append(("now", progress.phase()))
        facts.append(("time left", progress.time_left(time.time())))
        facts.append(("best so far", progress.best()))
    facts.append(("candidates", progress.waiting()))
    facts.append(("verdicts", words.counts(record.verdict_counts())))
    if record.losses():
        facts.append(("lost", words.losses(dict(Counter(record.losses())))))
    facts.append(("releases", str(max(0, len(record.releases) - 1))))
    final = record.closing(FINAL)
    if final is not None and final.verdict is not None:
        facts.append(("gain", words.interval(final.verdict.interval) + " over the start"))
    facts.append(("spent", words.duration(_spent_s(record, running))))
    facts.append(("next", _next(folder, record, running)))
    return facts


def _state(record: CampaignRecord, running: bool) -> str:
    state = record.state
    if not running and state in ("opening", "running"):
        state = "interrupted (its processes are gone; nothing is lost)"
    return f"{state}: {record.reason}" if record.reason else state


def _spent_s(record: CampaignRecord, running: bool) -> float:
    return record.spent_s(time.time() if running else (record.last_s or 0.0))


def _next(folder: RunFolder, record: CampaignRecord, running: bool) -> str:
    if running:
        return "Ctrl-C in its terminal pauses it"
    if record.state in ("finished", "refused"):
        return f"perpetune report {short_name(folder)}"
    return resume_line(folder)


async def _ask(folder: RunFolder, url: str) -> CampaignStatus | None:
    async with open_store(folder, url) as ports:
        try:
            request = AskStatus(folder.campaign)
            return await ports.bus.ask("scheduler", request, CampaignStatus, timeout_s=2.0)
        except TroubleError:
            return None  # it is starting, or starting again: the ledger says enough
