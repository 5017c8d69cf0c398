"""vLLM's own server as its users start it, none of our code in it, and an outside client for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from engine_host.environments import environment
from engine_host.errors import HostError
from engine_host.vllm_tree import version
from protos.trial import Request
from services.processes import die_with_parent

START_LIMIT_S = 480.0
# vLLM asks for 92 % of the memory and ends where anybody else has some of it; speed doesn't depend
# on what the cache leaves unused.
MEMORY = ("--gpu-memory-utilization", "0.3")
REQUEST_LIMIT_S = 120.0
TCMALLOC = tuple(
    f"{folder}/{name}"
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
    for name in ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
)


@dataclass(frozen=True)
class Setup:
    """How a server is started: environment variables, and an export's own script, if there is one.

    The script takes the model and further flags, as `vllm serve` does.
    """

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    script: Path | None = None


def default_setup() -> Setup:
    """vLLM as a user gets it: no variable, nothing preloaded, no flag but the memory it may ask."""
    return Setup("default")


def best_known_setup() -> Setup:
    """The best configuration known by hand: every core bound, tuned allocator and OpenMP preloaded.

    Where this machine has no tcmalloc, without it; `preloads` in the result says what was there.
    """
    cores = sorted(os.sched_getaffinity(0))
    libraries = [str(environment("vllm").folder / "lib" / "libiomp5.so"), *tcmalloc()]
    return Setup(
        "best_known",
        {
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
            "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
            "LD_PRELOAD": ":".join(path for path in libraries if os.path.exists(path)),
        },
    )


def export_setup(folder: Path) -> Setup:
    """A release as `perpetune export` wrote it. Raises HostError when it has no `serve.sh`."""
    script = folder.resolve() / "serve.sh"
    if not script.is_file():
        raise HostError(f"{folder} is no export of a vLLM release: it has no serve.sh")
    return Setup("release", {"VLLM": str(environment("vllm").folder / "bin" / "vllm")}, script)


def tcmalloc() -> list[str]:
    """The first tcmalloc of this machine, or the one that PERPETUNE_TCMALLOC names."""
    named = os.environ.get("PERPETUNE_TCMALLOC")
    return [path for path in ((named,) if named else TCMALLOC) if os.path.exists(path)][:1]


@dataclass
class Server:
    """A server that answers. `start_s`: from its start to its first healthy answer."""

    host: str
    port: int
    model: str
    start_s: float


@contextlib.contextmanager
def serving(setup: Setup, model: Path, work: Path) -> Iterator[Server]:
    """`vllm serve MODEL` until the block ends. `work` keeps its caches and log.

    Raises HostError with the server's own last error line.
    """
    work.mkdir(parents=True, exist_ok=True)
    own, port = environment("vllm"), _free_port()
    command = [own.python, "-m", "vllm.entrypoints.cli.main", "serve"]
    if setup.script:
        command = ["/bin/sh", str(setup.script)]
    command += [str(model), "--host", "127.0.0.1", "--port", str(port), *MEMORY]
    log = work / f"{setup.name}.log"
    began_s = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env=_variables(work) | setup.variables,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
    try:
        _await_health(process, port, log)
        yield Server("127.0.0.1", port, str(model), time.monotonic() - began_s)
    finally:
        _end(process)


def _variables(work: Path) -> dict[str, str]:
    # The command asks for its version under the name vllm, whatever its package is called.
    names = work.resolve() / "names"
    number = version().rpartition(" ")[2]
    about = names / f"vllm-{number}+cpu.dist-info" / "METADATA"
    about.parent.mkdir(parents=True, exist_ok=True)
    about.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}+cpu\n")
    return {
        "PYTHONPATH": str(names),
        "PATH": f"{environment('vllm').folder / 'bin'}:/usr/bin:/bin",
        "HOME": str(work.resolve()),
        "USER": "user",
        "LC_ALL": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_health(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise HostError(f"vLLM's server ended: {_last_error(log)}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.1)  # between two looks at a port that isn't open yet
        finally:
            connection.close()
    raise HostError(f"vLLM's server didn't answer within {START_LIMIT_S:g} s; see {log}")


def _last_error(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "See root cause above" not in line]
    return (errors or lines or ["no reason given"])[-1][-300:]


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server and every process it started."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass
class Answer:
    """What the client saw of one request; times from its send."""

    tokens: int = 0
    first_s: float | None = None
    last_s: float = 0.0
    error: str | None = None


def load(server: Server, requests: Sequence[Request]) -> dict[str, Any]:
    """Send every request at once, stream the answers, and sum up in the names of serving benches.

    Failures are counted and add no tokens.
    """
    answers = [Answer() for _ in requests]
    began_s = time.monotonic()
    threads = [
        threading.Thread(target=_stream, args=(server, request, answer))
        for request, answer in zip(requests, answers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = time.monotonic() - began_s
    firsts = [a.first_s for a in answers if a.first_s is not None and a.error is None]
    tpots = [
        (a.last_s - a.first_s) / (a.tokens - 1)
        for a in answers
        if a.first_s is not None and a.tokens > 1 and a.error is None
    ]
    return {
        "output_tok_s": sum(a.tokens for a in answers if a.error is None) / wall_s,
        "ttft_ms_p50": median(firsts) * 1e3 if firsts else None,
        "tpot_ms_p50": median(tpots) * 1e3 if tpots else None,
        "requests": len(requests),
        "failed": sum(a.error is not None for a in answers),
    }


def _stream(server: Server, request: Request, answer: Answer) -> None:
    body = {
        "model": server.model,
        "prompt": list(request.prompt),
        "max_tokens": request.max_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection(server.host, server.port, timeout=REQUEST_LIMIT_S)
    began_s = time.monotonic()
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            answer.error = f"status {response.status}"
            return
        for line in response:
            _take(line, answer, time.monotonic() - began_s)
        if answer.tokens != request.max_tokens:
            answer.error = f"{answer.tokens} tokens, not {request.max_tokens}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        answer.error = str(error) or type(error).__name__
    finally:
        connection.close()


def _take(line: bytes, answer: Answer, now_s: float) -> None:
    """One line of the stream. Raises ValueError when it isn't what the interface promises."""
    if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
        return
    event = json.loads(line[6:])
    if event.get("choices"):
        answer.first_s = now_s if answer.first_s is None else answer.first_s
        answer.last_s = now_s
    if event.get("usage"):
        answer.tokens = int(event["usage"]["completion_tokens"])
