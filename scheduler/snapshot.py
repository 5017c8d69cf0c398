"""The state on disk, so that a restart replays only the ledger's tail. Never the truth.

A snapshot of another version, a damaged one, or one that is ahead of the ledger (another ledger's)
is passed over, and everything is replayed.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from scheduler.state import State

VERSION = 3  # raise it with every change of state.py or of what the fold makes of an event


class Snapshot(msgspec.Struct):
    version: int
    last_seq: int
    state: State


class _Head(msgspec.Struct):
    version: int


class Snapshots:
    """One file, replaced whole. `path` None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self, head: int) -> State:
        """The state as saved, or an empty one. `head` is the ledger's last sequence."""
        if self._path is None or not self._path.exists():
            return State()
        raw = self._path.read_bytes()
        try:
            if msgspec.msgpack.decode(raw, type=_Head).version != VERSION:
                return State()
            snapshot = msgspec.msgpack.decode(raw, type=Snapshot)
        except (msgspec.DecodeError, ValueError):  # a value out of bounds is a ValueError
            return State()
        fits = snapshot.last_seq == snapshot.state.last_seq <= head
        return snapshot.state if fits else State()

    def save(self, state: State) -> None:
        """Replace the snapshot in one step. Raises OSError (a full disk); the old one stays."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(msgspec.msgpack.encode(Snapshot(VERSION, state.last_seq, state)))
        os.replace(fresh, self._path)
