"""Writes a campaign's `summary.json` and `report.html` into its run folder."""

from pathlib import Path

from services.blobs import Blobs
from services.errors import PerpetuneError
from services.report import known
from services.report.page import page
from services.report.record import CampaignRecord
from services.report.summary import Summary, to_json


class ReportError(PerpetuneError):
    """The report can't be written; one line that says why."""


def write_report(folder: Path, record: CampaignRecord, summary: Summary, blobs: Blobs) -> None:
    """Write both files, each whole or not at all. Raises ReportError."""
    try:
        _replace(folder / "summary.json", to_json(summary))
        _replace(folder / "report.html", page(record, summary, blobs, known.read(folder)).encode())
    except OSError as error:
        raise ReportError(f"cannot write the report in {folder}: {error.strerror}") from error


def _replace(file: Path, content: bytes) -> None:
    partial = file.with_suffix(file.suffix + ".part")
    partial.write_bytes(content)
    partial.replace(file)
