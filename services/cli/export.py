"""`perpetune export RELEASE --to DIR`: a release as files that work without Perpetune."""

import argparse
import re
import sys
from pathlib import Path

from protos.release import Release
from services.blobs import DirectoryBlobs
from services.cli.errors import UsageError
from services.cli.load import load
from services.export import ExportError, export_files, write_files
from services.export.write import check_empty
from services.local.run_folder import RunFolder, RunFolderError, find, listing, suggest
from services.report.record import CampaignRecord


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A release's id or number, and where to."""
    parser.add_argument("release", help="id (or its first characters), number, or last")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument("--campaign", help="name or run folder (default: newest that has it)")


def run(options: argparse.Namespace) -> int:
    """Write the export and say what to do with it."""
    check_empty(options.to)
    folder, record, release = _find(options.release, options.campaign)
    files = export_files(record, release, DirectoryBlobs(folder.blobs), Installed(record))
    write_files(files, options.to)
    print(f"release {release.id} of {record.campaign} is in {options.to}: see README.md there")
    return 0


class Installed:
    """vLLM's own files on this machine, looked at only when a file isn't in the start release."""

    def __init__(self, record: CampaignRecord) -> None:
        self._version = record.ready.facts.version if record.ready else None

    def __call__(self, path: str) -> bytes | None:
        """Raises ExportError where the vLLM that was tuned isn't there to be compared with."""
        packages = Path(sys.prefix).parent / ".venv-vllm" / "lib" / _python() / "site-packages"
        package, _, number = (self._version or "").partition(" ")
        about = packages / f"{package.replace('-', '_')}-{number}.dist-info"
        if not about.is_dir():
            raise ExportError(
                f"{path} is not in the start release, so {self._version} itself is needed to see "
                "what changed: make vllm"
            )
        file = packages / path
        return file.read_bytes() if file.is_file() else None


def _python() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _find(name: str, campaign: str | None) -> tuple[RunFolder, CampaignRecord, Release]:
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
            raise UsageError(f"{name!r} fits {', '.join(release.id for release in hits)}")
        seen += [known.release.id for known in record.releases]
    if not seen:
        raise RunFolderError("no campaign here has a release yet; start one with: perpetune tune")
    raise UsageError(f"no release {name!r}; {suggest(name, seen)}")


def matching(record: CampaignRecord, name: str) -> list[Release]:
    """The last release, the one with that number, or those whose id starts with `name`."""
    every = [known.release for known in record.releases]
    if name == "last":
        return every[-1:]
    if re.fullmatch(r"[0-9]{1,4}", name):
        return [release for release in every if release.number == int(name)]
    return [release for release in every if release.id.startswith(name)]
