"""A tree that holds more processes than were stopped doesn't pass for one that stands still."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from engine_host import processes

_PARENT = """
import os, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, b"x")
    time.sleep(600)
os.read(reader, 1)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def parent() -> Iterator[int]:
    """A process with one child, both asleep."""
    command = [sys.executable, "-S", "-c", _PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        processes.kill(process.pid)


def test_a_frozen_tree_stands_still(parent: int) -> None:
    assert processes.stands_still(processes.freeze(parent), parent)


def test_a_child_that_no_census_met_is_noticed(parent: int) -> None:
    processes.freeze(parent)
    assert not processes.stands_still([parent], parent)


def test_a_tree_that_runs_does_not_stand_still(parent: int) -> None:
    members = processes.freeze(parent)
    processes.thaw(parent)
    assert not processes.stands_still(members, parent)
