"""Command line: `python -m evaluator.workloads check-trace FILE`, for doors that take a trace in.

Prints `{"format": …, "rows": …}`, or one line on stderr and exits with 2.
"""

import argparse
import json
import sys
from pathlib import Path

from evaluator.workloads.base import WorkloadError
from evaluator.workloads.trace import parse_trace


def main(arguments: list[str]) -> int:
    """Check one trace file, its format told from its first byte."""
    parser = argparse.ArgumentParser(prog="python -m evaluator.workloads")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("check-trace", help="read a trace and say what it is")
    command.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    try:
        data = options.file.read_bytes()
        trace_format = "mooncake_jsonl" if data.lstrip()[:1] == b"{" else "azure_csv"
        rows = parse_trace(data, trace_format)
    except OSError as error:
        print(f"{options.file}: {error.strerror}", file=sys.stderr)
        return 2
    except WorkloadError as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"format": trace_format, "rows": len(rows)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
