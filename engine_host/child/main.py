"""What a child interpreter does: learn what to be, get confined, and be it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from typing import Any

from .channel import Channel
from .confine import (
    Limits,
    Unprotected,
    close_descriptors,
    confine_zygote,
    enter_view,
)
from .runner import Built
from .tree import Tree, error_line
from .zygote import CONTROL_BYTES, Config, Zygote, serve_trial


def main(descriptor: int) -> None:
    """`descriptor`: a SEQPACKET control socket (a zygote), or a trial's own channel."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=descriptor)
    if sock.type == socket.SOCK_STREAM:
        _cold(Channel(sock))
    else:
        _zygote(sock)


def _built(config: Config) -> Built:
    sys.path.extend(config.search)
    sys.dont_write_bytecode = True
    os.environ.pop("LD_PRELOAD", None)
    tree = Tree.read(config.tree)
    return Built(
        config.package or config.engine,
        tree,
        config.weights,
        config.precision,
        dict(config.knobs),
        dict(config.libraries),
        compiled=config.compiled,
    )


def _enter(config: Config, descriptor: int) -> None:
    if config.unsafe:
        os.chdir(tempfile.mkdtemp(prefix="perpetune-unsafe-"))
    else:
        enter_view(config.sees())
    close_descriptors({descriptor})


def _zygote(control: socket.socket) -> None:
    config = Config.parse(json.loads(control.recv(CONTROL_BYTES)))
    built = None
    try:
        _enter(config, control.fileno())
        if not config.unsafe:
            confine_zygote()
        built = _built(config)
        zygote = Zygote(control, config, built)
        golden = zygote.warm_up()
    except Unprotected as error:
        _say(control, {"error": str(error), "kind": "unprotected"})
        return
    except Exception as error:
        line = error_line(error, built.tree if built else None)
        _say(control, {"error": line, "kind": "start"})
        return
    _say(control, {"ready": True, "golden": golden})
    zygote.serve()


def _say(control: socket.socket, message: dict[str, Any]) -> None:
    control.send(json.dumps(message).encode())


def _cold(channel: Channel) -> None:
    """A trial from disk: confined before its engine's code is read, then served like any other."""
    first = channel.receive()
    assert first is not None
    config = Config.parse(first["config"])
    try:
        _enter(config, channel.fileno())
        built = _built(config)
    except Unprotected as error:
        channel.send({"error": str(error), "kind": "unprotected"})
        return
    serve_trial(channel, config, built, Limits(**first["limits"]), own_spaces=True)
