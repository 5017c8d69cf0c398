"""`perpetune audit` as a command line."""

from __future__ import annotations

import argparse

from services.cli import audit


def test_its_options_reach_the_audit_as_given() -> None:
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    given = audit.command(parser.parse_args(["--only", "cheats,nulls", "--nulls", "20"]))
    assert given[1:] == ["-m", "benchmarks.audit", "--only", "cheats,nulls", "--nulls", "20"]
    assert audit.command(parser.parse_args(["--hog"]))[1:] == ["-m", "benchmarks.audit", "--hog"]
