"""Starting fork servers and cold engines, and taking trial processes from them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from typing import Any

from engine_host import processes, sandbox
from engine_host.environments import environment
from engine_host.errors import EngineLostError, TrialFailedError, UnprotectedError
from engine_host.trial_process import TrialProcess
from engine_host.wire import ChannelBrokenError, ChannelTimeoutError, HostChannel, channel_pair
from protos.candidate import Scalar
from protos.trial import Limits
from services.processes import die_with_parent

_MESSAGE_BYTES = 1 << 18
FORK_LIMIT_S = 5.0
START_LIMIT_S = 120.0
TREE_PLACE = "/engine"  # where a child sees the tree of an engine that keeps compiled code


@dataclass(frozen=True)
class EngineKind:
    """What an engine's processes need: packages they may see, and imports worth having done.

    `own_environment`: it runs in `.venv-<engine>`, not in ours. `package`: of its tree, where that
    isn't named after the engine. `early`: its modules can be imported only once in a process.
    `compiles`: it keeps compiled code, that doesn't depend on paths that begin with `interpreted`
    nor on `uncompiled_knobs`. `reference_knobs`: the reference is built with them, whatever the
    start has. `start_s`: what a start may take; `load_s`: what a trial's load may, where its plan
    allows less. `memory_bytes`: what its resident engines take beside the weights.
    """

    packages: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    own_environment: bool = False
    package: str = ""
    early: bool = False
    compiles: bool = False
    interpreted: tuple[str, ...] = ()
    uncompiled_knobs: tuple[str, ...] = ()
    reference_knobs: tuple[tuple[str, Scalar], ...] = ()
    start_s: float = START_LIMIT_S
    load_s: float = 0.0
    memory_bytes: int = 500_000_000


KINDS = {
    "slim": EngineKind(packages=("torch", "numpy"), imports=("torch",)),
    "fake": EngineKind(),
    "vllm": EngineKind(
        imports=("vllm_adapter.early", "vllm_adapter.engine"),
        own_environment=True,
        package="vllm_adapter",
        early=True,
        compiles=True,
        interpreted=(
            "vllm/v1/core/",
            "vllm/v1/engine/",
            "vllm/v1/executor/",
            "vllm/v1/outputs.py",
            "vllm/v1/request.py",
            "vllm/v1/sample/",
            "vllm/v1/spec_decode/",
            "vllm/v1/utils.py",
            "vllm/v1/worker/",
        ),
        uncompiled_knobs=(
            "allocator",
            "bind",
            "kv_cache_mib",
            "long_prefill_token_threshold",
            "max_num_batched_tokens",
            "max_num_seqs",
            "ngram_lookup_max",
            "ngram_tokens",
            "prefix_caching",
        ),
        reference_knobs=(("mode", "eager"), ("kv_cache_mib", 512)),
        start_s=300.0,
        load_s=110.0,
        memory_bytes=4_000_000_000,
    ),
}


@dataclass(frozen=True)
class Exposure:
    """Settings for development only: no confinement, and the children's own output shown."""

    unsafe: bool = False
    output: bool = False


CONFINED = Exposure()
_TOLD = ("engine", "tree", "weights", "knobs", "libraries", "precision", "warm_up", "compiled")


@dataclass(frozen=True)
class ChildSpec:
    """Which engine a child is: its tree, prepared weights folder, knobs, libraries."""

    engine: str
    tree: str
    weights: str
    knobs: dict[str, Scalar] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)  # name to path
    precision: str = "bfloat16"
    warm_up: tuple[dict[str, Any], ...] = ()
    exposure: Exposure = CONFINED
    compiled: str = ""  # archive of compiled code; it may not exist yet

    def config(self, kind: str) -> dict[str, Any]:
        """What the child is told."""
        known = KINDS[self.engine]
        own = [*self.libraries.values(), *([self.compiled] if self.compiled else [])]
        folders = sorted({os.path.dirname(path) for path in own})
        told = {name: getattr(self, name) for name in _TOLD}
        paths: tuple[str, ...] = (self.tree, self.weights, *folders, *self._own())
        if known.compiles and not self.exposure.unsafe:
            # Compiled code names the files it was made from, whichever tree they lie in.
            told |= {"tree": TREE_PLACE, "moved": ((self.tree, TREE_PLACE),)}
            paths = paths[1:]
        return {
            "kind": kind,
            **told,
            "view": sandbox.view(known.packages, paths),
            "hidden": sandbox.hidden(),
            "search": self._search(),
            "imports": known.imports,
            "package": known.package,
            "interpreted": known.interpreted,
            "early": known.early,
            "unsafe": self.exposure.unsafe,
        }

    def command(self) -> tuple[str, dict[str, str]]:
        """The interpreter of the child and its whole environment. Raises HostError."""
        variables = sandbox.environment()
        if not KINDS[self.engine].own_environment:
            return sys.executable, variables
        own = environment(self.engine)
        return own.python, variables | own.variables(self.knobs)

    def _own(self) -> tuple[str, ...]:
        if not KINDS[self.engine].own_environment:
            return ()
        return (str(environment(self.engine).folder), sysconfig.get_path("include"))

    def _search(self) -> tuple[str, ...]:
        if not KINDS[self.engine].own_environment:
            return sandbox.search_paths()
        return (str(environment(self.engine).packages),)


class Zygote:
    """A running fork server. `fork` hands out confined trial processes."""

    def __init__(self, spec: ChildSpec, kind: str) -> None:
        """Start it; `wait` until it is ready before anything else."""
        self.spec = spec
        self.golden: list[list[int]] = []
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ended: dict[int, int] = {}
        with theirs:
            self._process = _spawn(theirs, spec)
        self._control.send(json.dumps(spec.config(kind)).encode())

    def wait(self) -> None:
        """Until it is ready. Raises EngineLostError or UnprotectedError; it is gone then."""
        limit_s = KINDS[self.spec.engine].start_s
        self._control.settimeout(limit_s)
        try:
            reply = self._read()
        except (TimeoutError, OSError) as error:
            self.close()
            raise EngineLostError(f"engine didn't start within {limit_s:g} s: {error}") from error
        if not reply.get("ready"):
            self.close()
            kinds = {"unprotected": UnprotectedError}
            raise kinds.get(str(reply.get("kind")), EngineLostError)(str(reply.get("error")))
        self.golden = reply["golden"]

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, limits: Limits, limit_s: float = FORK_LIMIT_S) -> TrialProcess:
        """A fresh trial process. Raises EngineLostError: the patch has had no part in it yet."""
        channel, theirs = channel_pair()
        deadline_ns = time.monotonic_ns() + int(limit_s * 1e9)
        order = {
            "limits": {"memory_bytes": limits.memory_bytes, "processes": limits.processes},
        }
        try:
            with theirs:
                socket.send_fds(self._control, [json.dumps(order).encode()], [theirs.fileno()])
            pid = channel.sender_pid(deadline_ns)
            _hello(channel, deadline_ns)
            inside = self._forked()
        except (OSError, ChannelBrokenError, ChannelTimeoutError) as error:
            channel.close()
            raise EngineLostError(f"the zygote gave no trial: {error or 'no answer'}") from error
        trial = TrialProcess(pid, channel, limits, lambda: self._how_it_ended(inside))
        return trial

    def close(self) -> None:
        """End it with every trial forked from it."""
        self._control.close()
        if self.alive():
            processes.kill(self._process.pid)
            self._process.wait()

    def _read(self) -> dict[str, Any]:
        raw = self._control.recv(_MESSAGE_BYTES)
        if not raw:
            return {"error": f"its process ended with status {self._process.wait()}"}
        message: dict[str, Any] = json.loads(raw)
        if "reaped" in message:
            self._ended[message["reaped"]] = message["status"]
        return message

    def _forked(self) -> int:
        """The process id, in the zygote's own namespace, of the fork that was just made."""
        self._control.settimeout(FORK_LIMIT_S)
        while True:
            message = self._read()
            if "forked" in message:
                number: int = message["forked"]
                self._ended.pop(number, None)
                return number
            if "error" in message:
                raise ChannelBrokenError(message["error"])

    def _how_it_ended(self, inside: int) -> str:
        self._control.settimeout(0.5)
        try:
            while inside not in self._ended:
                if "error" in self._read():
                    return "with its zygote"
        except (TimeoutError, OSError):
            return ""
        status = self._ended[inside]
        if status >= 0:
            return f"exit status {status}"
        return f"killed by {signal.Signals(-status).name}"


def start_cold(spec: ChildSpec, limits: Limits, kind: str = "cold", rank: int = 0) -> TrialProcess:
    """A new interpreter that will read everything from disk, confined before it does.

    Returns once it is confined; `load` then imports and builds. Raises TrialFailedError.
    """
    channel, theirs = channel_pair()
    with theirs:
        process = _spawn(theirs, spec)
    deadline_ns = time.monotonic_ns() + int(limits.start_s * 1e9)
    order = {
        "config": {**spec.config(kind), "rank": rank},
        "limits": {"memory_bytes": limits.memory_bytes, "processes": limits.processes},
    }
    trial = ColdProcess(process, channel, limits)
    try:
        channel.send(order, deadline_ns)
        trial.pid = channel.sender_pid(deadline_ns)
        _hello(channel, deadline_ns)
    except (ChannelBrokenError, ChannelTimeoutError) as error:
        trial.end()
        raise TrialFailedError("start", str(error) or "took too long to start") from error
    except UnprotectedError:
        trial.end()
        raise
    trial.rung = "cold"
    return trial


class ColdProcess(TrialProcess):
    """A trial that is no fork: its minder is a child of the host and is ended with it."""

    def __init__(
        self, minder: subprocess.Popen[bytes], channel: HostChannel, limits: Limits
    ) -> None:
        super().__init__(minder.pid, channel, limits, self._status)
        self._minder = minder

    def _status(self) -> str:
        try:
            status = self._minder.wait(0.5)
        except subprocess.TimeoutExpired:
            return ""
        return f"exit status {status}"

    def end(self) -> bool:
        gone = super().end()
        gone = processes.kill(self._minder.pid) and gone
        self._minder.wait()
        return gone


def _spawn(theirs: socket.socket, spec: ChildSpec) -> subprocess.Popen[bytes]:
    number = theirs.fileno()
    python, variables = spec.command()
    script = str(sandbox.CHILD_FOLDER / "launch.py")
    output = None if spec.exposure.output else subprocess.DEVNULL
    return subprocess.Popen(
        [python, "-I", "-S", script, str(number)],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(number,),
        start_new_session=True,
        preexec_fn=die_with_parent(),
    )


def _hello(channel: HostChannel, deadline_ns: int) -> None:
    _, hello = channel.receive(deadline_ns)
    if hello.get("kind") == "unprotected":
        raise UnprotectedError(str(hello.get("error")))
    if "hello" not in hello:
        raise ChannelBrokenError(str(hello.get("error", "it said something else than hello")))
