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
    stopped = processes.freeze(parent)
    assert stopped.still
    assert stopped.pids[0] == parent
    assert len(stopped.pids) == len(stopped.threads) == 2


def test_a_child_that_was_not_sent_the_signal_is_found_and_stopped(parent: int) -> None:
    processes.halt([parent])
    stopped = processes.freeze(parent, halted=[parent])
    assert stopped.still
    assert len(stopped.pids) == 2


def test_a_tree_that_can_not_be_stopped_does_not_stand_still(
    parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals that never arrive stand for processes that are started faster than stopped."""
    monkeypatch.setattr(processes, "halt", lambda pids: None)
    assert not processes.freeze(parent, within_s=0.05).still


def test_a_stopped_tree_is_counted_by_its_threads_as_by_its_processes(parent: int) -> None:
    stopped = processes.freeze(parent)
    assert processes.usage_of(stopped.threads) == processes.usage(stopped.pids)


def test_a_tree_that_was_woken_is_not_taken_for_still(
    parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.wake(processes.freeze(parent).pids)
    monkeypatch.setattr(processes, "halt", lambda pids: None)
    assert not processes.freeze(parent, within_s=0.05).still
