"""The fork server: one release's engine, warm (or bare: imports and weights), asked for trials.

Each `fork` on the control socket comes with the trial's end of a channel; the fork confines itself,
says hello on it (the kernel tells the host its process id) and serves. The zygote never serves.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.abc
import json
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass, field
from typing import Any

from . import syscalls
from .calls import Ran, record_runs
from .channel import Channel, HostGone
from .confine import Limits, View, close_descriptors, confine_trial
from .runner import Built, Runner, record_calls

CONTROL_BYTES = 1 << 18
BATCH = 8


@dataclass
class Config:
    """What the host wants this child to be; one JSON message on the control socket."""

    kind: str  # warm | bare | cold | spare_warm | spare_bare
    engine: str
    tree: str
    weights: str
    view: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()  # shown elsewhere than they are
    search: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    precision: str = "bfloat16"
    knobs: dict[str, Any] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)  # name to path
    warm_up: tuple[dict[str, Any], ...] = ()
    unsafe: bool = False
    rank: int = 0
    package: str = ""  # of the tree, where it isn't named after the engine
    compiled: str = ""  # archive that the engine's compiled code may be taken from
    interpreted: tuple[str, ...] = ()  # paths begin with these that no compiled code holds
    early: bool = False  # the tree's modules can be imported but once: before any patch is loaded

    @classmethod
    def parse(cls, raw: dict[str, Any]) -> Config:
        lists = ("view", "hidden", "search", "devices", "imports", "warm_up", "interpreted")
        given: Any = {k: tuple(v) if k in lists else v for k, v in raw.items()}
        given["moved"] = tuple((path, place) for path, place in raw.get("moved", ()))
        return cls(**given)

    def sees(self) -> View:
        return View(self.view, self.hidden, self.devices, self.moved)


class Zygote:
    """Runs until the control socket closes."""

    def __init__(self, control: socket.socket, config: Config, built: Built) -> None:
        self._control = control
        self._config = config
        self._built = built
        self._own_pids: int | None = None

    def warm_up(self) -> list[list[int]]:
        """Import, and in a warm zygote build the engine, serve the golden requests, forget them."""
        return make_ready(self._config, self._built, warm=self._config.kind == "warm")

    def serve(self) -> None:
        gc.collect()
        gc.freeze()
        waker, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(waker, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if waker in ready:
                os.read(waker, 4096)
                self._reap()
            if self._control.fileno() in ready and not self._obey():
                return

    def _obey(self) -> bool:
        raw, descriptors, _, _ = socket.recv_fds(self._control, CONTROL_BYTES, 1)
        if not raw:
            return False
        limits = Limits(**json.loads(raw)["limits"])
        (descriptor,) = descriptors
        self._fork(descriptor, limits)
        os.close(descriptor)
        return True

    def _fork(self, descriptor: int, limits: Limits) -> None:
        unsafe = self._config.unsafe
        if not unsafe:
            if self._own_pids is None:
                self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            syscalls.unshare(syscalls.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self._become_trial(descriptor, limits)
                status = 0
            finally:
                os._exit(status)
        if not unsafe and self._own_pids is not None:
            syscalls.setns(self._own_pids, syscalls.CLONE_NEWPID)
        self._tell({"forked": pid})

    def _become_trial(self, descriptor: int, limits: Limits) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        close_descriptors({descriptor})
        channel = Channel(socket.socket(fileno=descriptor))
        serve_trial(channel, self._config, self._built, limits, own_spaces=False)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._tell({"reaped": pid, "status": os.waitstatus_to_exitcode(status)})

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(message).encode())
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)


def make_ready(config: Config, built: Built, *, warm: bool) -> list[list[int]]:
    """Import, then build and warm the engine; a bare process throws it away again.

    What libraries keep for shapes they have met stays in the process either way, so that engines
    forked warm and engines built in a fork start alike. Returns the tokens of the warm-up requests.
    """
    if config.early:
        finder = _import_early(config, built)
        if not warm:
            # An engine thrown away would leave behind what functions remember of their calls.
            importlib.import_module(built.name).load_weights(config.weights)
            return []
    else:
        _import(config)
        built.tree.compile_all()
        finder = built.tree.install()

    if config.early:
        built.ran_at_build = _build_early(config, built)
    else:
        built.ran_at_build = record_calls(built.tree.root, built.build_and_prepare)
    golden: list[list[int]] = []
    for request in config.warm_up:
        built.engine.submit(request)
        golden.append([])
        while built.engine.busy():
            golden[-1] += [t for output in built.engine.step() for t in output["tokens"]]
    _run_together(built.engine, config.warm_up)
    built.engine.reset()
    if config.compiled:
        built.pack_compiled()  # forks have a scratch folder of their own
    if config.early:
        built.ran_at_build |= {*built.engine.held()}  # by compiled graphs
    if not warm:
        built.forget()
        sys.meta_path.remove(finder)
    return golden


def _build_early(config: Config, built: Built) -> Ran:
    """Build, rehearse, prepare; which functions may not change in the engine that exists then.

    A rehearsal leaves nothing behind but compiled code, which never depends on the serving loop.
    """
    ran = record_runs(built.tree, built.build)
    loop = tuple(built.tree.filename(path) for path in config.interpreted)
    rehearsed = record_runs(built.tree, built.rehearse)
    ran |= {place for place in rehearsed if not loop or not place[0].startswith(loop)}
    return ran | record_runs(built.tree, built.prepare) | (built.ran_at_import or frozenset())


def _import(config: Config) -> None:
    for name in config.imports:
        importlib.import_module(name)


def _import_early(config: Config, built: Built) -> importlib.abc.MetaPathFinder:
    """Import through the tree, noting which of its functions run meanwhile."""
    finder = built.tree.install()
    built.tree.compile_all()
    built.ran_at_import = record_runs(built.tree, lambda: _import(config))
    return finder


def _run_together(engine: Any, requests: tuple[dict[str, Any], ...]) -> None:
    """Serve a batch that shrinks one by one: every number of sequences has been met then."""
    for number, request in enumerate(requests[-BATCH:]):
        engine.submit({**request, "id": 1000 + number, "max_tokens": number + 1})
    while engine.busy():
        engine.step()


def serve_trial(
    channel: Channel, config: Config, built: Built, limits: Limits, *, own_spaces: bool
) -> None:
    """Confine this process, say hello, and serve the host until it has enough."""
    layers: dict[str, Any] = {}
    if not config.unsafe:
        layers = confine_trial(config.sees(), limits, own_spaces=own_spaces).layers
    channel.send({"hello": layers})
    if config.kind.startswith("spare_"):
        channel.receive()  # `stand_by`: the host is there to time it out
        golden = make_ready(config, built, warm=config.kind == "spare_warm")
        channel.send({"re": "stand_by", "ok": True, "value": golden})
    with contextlib.suppress(HostGone):
        Runner(channel, built).serve()
