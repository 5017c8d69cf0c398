"""Frames between a child and its host: 4 bytes of length, big-endian, then JSON."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

MAX_FRAME_BYTES = 64 * 1024 * 1024


class HostGone(Exception):
    """The other end of the channel is closed: there is nobody left to work for."""


class Channel:
    """One blocking stream socket. Frames arrive whole and in order."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message, separators=(",", ":")).encode()
        self._sock.sendall(len(body).to_bytes(4, "big") + body)

    def receive(self, *, wait: bool = True) -> dict[str, Any] | None:
        """The next frame; None when there is none and `wait` is false. Raises HostGone."""
        while True:
            frame = self._take()
            if frame is not None:
                return frame
            if not wait and not self._poll.poll(0):
                return None
            data = self._sock.recv(1 << 18)
            if not data:
                raise HostGone
            self._buffer += data

    def _take(self) -> dict[str, Any] | None:
        if len(self._buffer) < 4:
            return None
        size = int.from_bytes(self._buffer[:4], "big")
        if size > MAX_FRAME_BYTES:
            raise HostGone
        if len(self._buffer) < 4 + size:
            return None
        body = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        message: dict[str, Any] = json.loads(body)
        return message
