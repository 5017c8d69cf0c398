"""Command line: `python -m engine_host.models prepare <model> --home <dir>`."""

import argparse
import json
import sys
from pathlib import Path

from .errors import ModelError
from .hf_folder import hf_folder
from .locate import ACCEPTED
from .prepared import prepare, verify


def main(arguments: list[str]) -> int:
    """Prepare one model. One JSON line on stdout, or one line on stderr and 2."""
    parser = argparse.ArgumentParser(prog="python -m engine_host.models")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("prepare", help="convert a model once and print where it lies")
    command.add_argument("model", help=ACCEPTED)
    command.add_argument("--home", type=Path, required=True, help="folder that caches models")
    command.add_argument("--verify", action="store_true", help="check the cached files' digests")
    command.add_argument("--hf", action="store_true", help="write it as a Hugging Face folder too")
    options = parser.parse_args(arguments)
    try:
        prepared = prepare(options.model, options.home)
        if options.verify:
            verify(prepared.folder)
        more = {"hf_folder": str(hf_folder(prepared.folder).resolve())} if options.hf else {}
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    answer = {
        "digest": prepared.digest,
        "folder": str(prepared.folder.resolve()),
        "facts": prepared.facts,
        **more,
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
