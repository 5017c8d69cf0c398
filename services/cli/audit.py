"""`perpetune audit`: hands over to benchmarks/audit.py."""

import argparse
import os
import sys

OPTIONS = {
    "only": "parts, comma-separated: cheats, controls, nulls, power",
    "nulls": "how many null patches (300)",
    "power-trials": "how many trials of a true gain of 5 percent (30)",
    "hog-trials": "how many A/A trials beside the hog (100)",
    "match": "only cheats and controls whose name holds this",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The audit's own options, as text; it reads them itself."""
    for name, help_line in OPTIONS.items():
        parser.add_argument(f"--{name}", metavar="…", help=help_line)
    parser.add_argument("--hog", action="store_true", help="only: trials beside a CPU hog")


def command(options: argparse.Namespace) -> list[str]:
    """The audit's command line."""
    given = {name: getattr(options, name.replace("-", "_")) for name in OPTIONS}
    words = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    hog = ["--hog"] if options.hog else []
    return [sys.executable, "-m", "benchmarks.audit", *words, *hog]


def run(options: argparse.Namespace) -> int:
    """Become the audit's process: its exit code and last line are the command's."""
    sys.stdout.flush()
    words = command(options)
    os.execv(words[0], words)
