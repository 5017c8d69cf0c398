"""`perpetune doctor`: what this machine can do, what is missing, and how to get it."""

import argparse
import json
from dataclasses import asdict

from services.cli import machine
from services.local.run_folder import RUNS
from services.local.system import default_home

MARKS = {"ok": "ok", "missing": "MISSING", "note": "note"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json` for programs."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")


def run(options: argparse.Namespace) -> int:
    """Print every finding. 0 when nothing that a campaign needs is missing, else 1."""
    findings = machine.findings(runs=RUNS, home=default_home())
    missing = [finding for finding in findings if finding.state == "missing"]
    if options.json:
        print(json.dumps({"ok": not missing, "findings": [asdict(f) for f in findings]}))
        return 1 if missing else 0
    for finding in findings:
        print(f"{finding.name:<14} {MARKS[finding.state]:<8} {finding.value}")
        if finding.remedy:
            print(f"{'':<14} {'':<8} -> {finding.remedy}")
    print()
    if missing:
        print(f"{len(missing)} missing: {', '.join(finding.name for finding in missing)}")
        return 1
    print("this machine can run a campaign: perpetune tune")
    return 0
