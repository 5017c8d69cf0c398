"""`perpetune tune`: open a campaign (or resume one), watch it, report it."""

import argparse
import asyncio
from pathlib import Path

import msgspec

from protos.messages import OpenCampaign, ResumeCampaign, StopCampaign
from protos.target import ENGINES, METRICS, WORKLOADS, parse_duration_s
from services.blobs import DirectoryBlobs
from services.cli import closing
from services.cli.errors import UsageError
from services.cli.live import View, open_view
from services.cli.order import order
from services.cli.progress import Progress
from services.cli.watch import Interrupts, watch
from services.errors import PerpetuneError
from services.local.run_folder import RUNS, RunFolder, check_space, create, find
from services.local.system import System, SystemFailed, open_system
from services.log import setup_log
from services.report.record import CampaignRecord


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `perpetune tune`; every one has a default that works on a small machine."""
    add = parser.add_argument
    add(
        "--model",
        default="smollm2",
        metavar="M",
        help="smollm2 (built in), a GGUF file, a Hugging Face folder, or seed:SHAPE",
    )
    add("--engine", default="slim", metavar="E", help="one of " + ", ".join(ENGINES))
    add("--workload", default="single", metavar="W", help="one of " + ", ".join(WORKLOADS))
    add(
        "--objective",
        default="output_tok_s",
        metavar="O",
        help="a metric, with limits if wanted: 'output_tok_s subject to ttft_ms_p99 <= 300'. "
        "Metrics: " + ", ".join(METRICS),
    )
    add("--budget", default=None, metavar="5m", help="wall time: 90s, 5m, 2h (default 5m)")
    add(
        "--trace",
        type=Path,
        metavar="FILE",
        help="Mooncake JSONL or Azure CSV, with --workload trace",
    )
    add("--run", type=Path, metavar="DIR", help="run folder (default runs/<campaign>)")
    add("--resume", metavar="CAMPAIGN", help="go on with a campaign; --budget then adds time")
    add(
        "--seed",
        type=int,
        default=None,
        metavar="N",
        help="name the campaign by it: its name seeds all that proposers draw",
    )
    more = parser.add_argument_group("less often needed")
    more.add_argument("--precision", default="bfloat16", choices=("bfloat16", "float32"))
    more.add_argument("--device", default="cpu", metavar="CLASS", help="device class (cpu)")
    more.add_argument(
        "--output-class",
        default="equivalent",
        choices=("bitwise", "equivalent", "quality"),
        help="how far outputs may differ from the start's (default: equivalent)",
    )
    more.add_argument(
        "--min-effect", type=float, default=0.05, help="smallest gain worth a release (0.05)"
    )
    more.add_argument(
        "--control", type=float, default=0.5, help="share of search for the random arm (0.5)"
    )
    more.add_argument(
        "--canaries",
        type=float,
        default=0.05,
        help="share of the engines' time for candidates whose verdict is known (0.05)",
    )
    more.add_argument("--strategies", default="", help="only these proposers, comma-separated")
    more.add_argument("--port", type=int, help="port of the embedded broker (default: a free one)")


def run(options: argparse.Namespace) -> int:
    """Run a campaign to its end, or until it is interrupted. Returns the exit code."""
    if options.resume:
        folder = find(options.resume, RUNS)
        folder.check_writable()
        check_space(folder.path)
        return asyncio.run(_tune(folder, _resumption(folder, options), options))
    opening, trace = order(options)
    folder = create(options.run or RUNS / opening.campaign, opening.campaign)
    if trace is not None:
        opening = _with_trace(opening, DirectoryBlobs(folder.blobs).put_file(trace))
    return asyncio.run(_tune(folder, opening, options))


async def _tune(
    folder: RunFolder, command: OpenCampaign | ResumeCampaign, options: argparse.Namespace
) -> int:
    setup_log("cli", "0", file=folder.logs / "cli.log")
    interrupts = Interrupts()
    with interrupts.listening():
        async with open_system(folder, options.port) as system:
            record = await _so_far(system, command)
            view = open_view()
            try:
                view.say(f"campaign {folder.campaign} in {folder.path}")
                await system.ports.bus.publish("scheduler", command)
                await _watched(system, record, view, interrupts)
            finally:
                view.close()
        return closing.close(folder, record, interrupted=interrupts.first.is_set())


async def _so_far(system: System, command: OpenCampaign | ResumeCampaign) -> CampaignRecord:
    """What the ledger holds before the command. Raises UsageError when it can't be resumed."""
    record = CampaignRecord(command.campaign)
    async for recorded in system.ports.ledger.read():
        record.apply(recorded)
    if isinstance(command, ResumeCampaign) and record.state in ("finished", "refused", "unknown"):
        why = f": {record.reason}" if record.reason else ""
        raise UsageError(
            f"campaign {command.campaign} can't be resumed, it is {record.state}{why}; "
            "start a new one with perpetune tune"
        )
    return record


async def _watched(
    system: System, record: CampaignRecord, view: View, interrupts: Interrupts
) -> None:
    """Watch until the end. A failing system or broker comes out as one line."""

    async def ask_pause() -> None:
        await system.ports.bus.publish("scheduler", StopCampaign(record.campaign, "interrupted"))

    try:
        await watch(system.ports, Progress(record), view, interrupts, ask_pause, system.check)
    except* PerpetuneError as group:
        then = f"; then {closing.resume_line(system.folder)}" if record.opening else ""
        raise UsageError(f"{_cause(system, group.exceptions[0])}{then}") from group


def _cause(system: System, error: Exception) -> Exception:
    """A full disk, which many other errors come from, or the error itself."""
    try:
        system.check_disk()
    except SystemFailed as full:
        return full
    return error


def _with_trace(opening: OpenCampaign, digest: str) -> OpenCampaign:
    workload = msgspec.structs.replace(opening.workload, trace=digest)
    return msgspec.structs.replace(opening, workload=workload)


def _resumption(folder: RunFolder, options: argparse.Namespace) -> ResumeCampaign:
    try:
        extra_s = 0.0 if options.budget is None else parse_duration_s(options.budget)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return ResumeCampaign(folder.campaign, extra_s)
