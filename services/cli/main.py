"""`perpetune`: picks the subcommand and turns expected errors into one line and an exit code.

Exit codes: 0 done, 1 the campaign or a check failed, 2 the command can't be carried out as given,
130 interrupted.
"""

import argparse
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from typing import NoReturn

from services.errors import PerpetuneError

# Name -> what `--help` says. The module services.cli.<name> is imported only when it is called,
# so that `perpetune --help` is there at once.
COMMANDS = {
    "tune": "improve an engine for a model and a workload, and keep what is provably faster",
    "status": "what a campaign is doing, or how it ended",
    "report": "write a campaign's summary.json and report.html again, and print its table",
    "show": "one candidate: its change, its verdicts, their evidence, its trace",
    "recompute": "derive verdicts again from raw data alone, and compare them bit for bit",
    "ledger": "verify: the journal of promotions against the ledger, byte for byte",
    "export": "a release as patches, flags and an overlay that work without Perpetune",
    "doctor": "what this machine can do, and what is missing",
    "audit": "does the judge promote anything false? Cheats, controls, null patches, power",
    "bench": "measure Perpetune itself: start (rungs) or rate (experiments an hour)",
}


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the whole usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"perpetune: {message}; see {self.prog} --help\n")


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    parser = OneLineParser(
        prog="perpetune", description="Keeps an inference engine tuned.", allow_abbrev=False
    )
    version = importlib.metadata.version("perpetune")
    parser.add_argument("--version", action="version", version=f"perpetune {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, help_line in COMMANDS.items():
        command = commands.add_parser(name, help=help_line, description=help_line)
        if name == chosen:
            importlib.import_module(f"services.cli.{name}").add_arguments(command)
    options = parser.parse_args(argv)
    module = importlib.import_module(f"services.cli.{options.command}")
    try:
        return int(module.run(options))
    except PerpetuneError as error:
        print(f"perpetune: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away; nobody is left to tell
        return 1


if __name__ == "__main__":
    run()
