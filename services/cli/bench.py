"""`perpetune bench start|rate …`: hands over to the programs in benchmarks/."""

import argparse
import os
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything after the benchmark's name belongs to the benchmark."""
    parser.add_argument(
        "benchmark",
        choices=("start", "rate"),
        help="start: seconds from a patch to first tokens on each rung; rate: experiments an hour",
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="its own options")


def run(options: argparse.Namespace) -> int:
    """Become the benchmark's process: its exit code and last line are the command's."""
    sys.stdout.flush()
    os.execv(
        sys.executable,
        [sys.executable, "-m", f"benchmarks.{options.benchmark}", *options.rest],
    )
