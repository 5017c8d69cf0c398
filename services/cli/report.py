"""`perpetune report [CAMPAIGN]`: write the report again from the ledger, and print its table."""

import argparse

from services.blobs import DirectoryBlobs
from services.cli.closing import print_table
from services.cli.load import load
from services.local.run_folder import find
from services.report.summary import summarise
from services.report.write import write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A campaign's name or run folder; the newest one without."""
    parser.add_argument("campaign", nargs="?", help="name or run folder (default: the newest)")


def run(options: argparse.Namespace) -> int:
    """Write `summary.json` and `report.html`, whatever state the campaign is in."""
    folder = find(options.campaign)
    record = load(folder)
    summary = summarise(record)
    write_report(folder.path, record, summary, DirectoryBlobs(folder.blobs))
    print_table(folder, summary)
    return 0
