"""`perpetune recompute CANDIDATE|CAMPAIGN`: hands over to the evaluator, which alone can judge."""

import argparse
import os
import sys
from pathlib import Path

from services.cli.errors import UsageError
from services.cli.show import find_candidate
from services.local.run_folder import RunFolderError, find


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A campaign's name or run folder, or a candidate's id, its start, or its label."""
    parser.add_argument(
        "what", nargs="?", help="campaign, run folder or candidate (default: the newest campaign)"
    )
    parser.add_argument("--campaign", help="where to look for the candidate")


def run(options: argparse.Namespace) -> int:
    """Become the evaluator's process: its table, last line and exit code are the command's."""
    folder, candidate = _meant(options.what, options.campaign)
    more = ["--candidate", candidate] if candidate else []
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "evaluator", "recompute", str(folder), *more])


def _meant(what: str | None, campaign: str | None) -> tuple[Path, str | None]:
    """The run folder, and the candidate if one was named. A campaign's name goes first."""
    if what is None or campaign is None:
        try:
            return find(what or campaign).path, None
        except RunFolderError as no_campaign:
            if what is None:
                raise
            why = no_campaign
    else:
        why = None
    try:
        folder, _, known = find_candidate(what, campaign)
    except UsageError as error:
        raise UsageError(f"{error}; {why}" if why else str(error)) from error
    return folder.path, known.candidate.id
