"""The host's end of a trial's channel. Every frame is stamped when it arrives, before it is read.

Nothing that comes out of it is trusted: sizes, shapes and types are checked here.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from typing import Any

import msgspec

MAX_REPLY_BYTES = 32 * 1024 * 1024
_DECODER = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()


class ChannelBrokenError(Exception):
    """The other end is gone, or sent what is no frame; the message says which."""


class ChannelTimeoutError(Exception):
    """No frame came in time."""


class HostChannel:
    """Not thread-safe; blocking, with deadlines on the monotonic clock in nanoseconds."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._buffer = bytearray()
        self._ready: deque[tuple[int, dict[str, Any]]] = deque()

    def close(self) -> None:
        self._sock.close()

    def send(self, message: dict[str, Any], deadline_ns: int) -> None:
        """Write one frame whole. Raises ChannelBrokenError or ChannelTimeoutError."""
        body = _ENCODER.encode(message)
        view = memoryview(len(body).to_bytes(4, "big") + body)
        while view:
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                if not select.select([], [self._sock], [], _left_s(deadline_ns))[1]:
                    raise ChannelTimeoutError from None
            except OSError as error:
                raise ChannelBrokenError("its process ended") from error

    def receive(self, deadline_ns: int) -> tuple[int, dict[str, Any]]:
        """The next frame and when it arrived. Raises ChannelBrokenError or ChannelTimeoutError."""
        while True:
            found = self.take(_left_s(deadline_ns))
            if found is not None:
                return found
            if time.monotonic_ns() >= deadline_ns:
                raise ChannelTimeoutError

    def take(self, wait_s: float) -> tuple[int, dict[str, Any]] | None:
        """The next frame and its arrival, waiting at most `wait_s`; None if none is whole yet."""
        if self._ready:
            return self._ready.popleft()
        if not self._readable(wait_s):
            return None
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelBrokenError("its process ended") from error
        now_ns = time.monotonic_ns()
        if not data:
            raise ChannelBrokenError("its process ended")
        self._buffer += data
        self._split(now_ns)
        return self._ready.popleft() if self._ready else None

    def _readable(self, wait_s: float) -> bool:
        # select, not poll: arrivals are sent on time to the microsecond, not the millisecond.
        return bool(select.select([self._sock], [], [], wait_s)[0])

    def _split(self, now_ns: int) -> None:
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if size > MAX_REPLY_BYTES:
                raise ChannelBrokenError(f"it sent a frame of {size} bytes")
            if len(self._buffer) < 4 + size:
                return
            body = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            try:
                message = _DECODER.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ChannelBrokenError("it sent a malformed frame") from error
            if not isinstance(message, dict):
                raise ChannelBrokenError("it sent a malformed frame")
            self._ready.append((now_ns, message))

    def sender_pid(self, deadline_ns: int) -> int:
        """The process that wrote the first byte waiting here, as the kernel says it."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        while True:
            if not self._readable(_left_s(deadline_ns)):
                raise ChannelTimeoutError
            data, ancillary, _, _ = self._sock.recvmsg(1 << 16, socket.CMSG_SPACE(12))
            if not data:
                raise ChannelBrokenError("its process ended")
            self._buffer += data
            self._split(time.monotonic_ns())
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                    self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
                    pid: int = struct.unpack("3i", content[:12])[0]
                    return pid


def _left_s(deadline_ns: int) -> float:
    return max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)


def channel_pair() -> tuple[HostChannel, socket.socket]:
    """A channel and the socket that the child gets. Credentials are asked for before any byte."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return HostChannel(ours), theirs
