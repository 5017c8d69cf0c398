"""`python -m benchmarks.vllm_known`: vLLM's default and its best known configuration, from outside.

`vllm serve` as anybody starts it, asked over its own interface by one client in this process. The
two are started in turns (default, best, best, default), and each start serves the same rounds: the
unit of replication is a start. `--export DIR` measures a release the same way, started by the
export's own script. `--out` writes the JSON where a run's report can pick it up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.vllm_server import (
    MEMORY,
    Setup,
    best_known_setup,
    default_setup,
    export_setup,
    load,
    serving,
    tcmalloc,
)
from engine_host.errors import HostError
from evaluator.recompute import ScriptMaker
from evaluator.workloads import make_generator
from protos.target import Workload
from protos.trial import Request
from services.blobs import DirectoryBlobs
from services.local.system import default_home

FILE = "vllm_known.json"  # in a run folder
# `chat` at the shapes of its slow tier, all users at once: capacity, not latency under a rate.
CHAT = {
    "fast_users": 16.0,
    "fast_system": 48.0,
    "fast_message_max": 56.0,
    "fast_output_max": 32.0,
}


def main(argv: list[str]) -> int:
    """Measure; the last line of stdout is JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_known")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--starts", type=int, default=2, help="of each configuration")
    parser.add_argument("--rounds", type=int, default=6, help="timed, of each start")
    parser.add_argument("--workload", choices=("chat", "single"), default="chat")
    parser.add_argument("--export", type=Path, help="folder of `perpetune export`: the release too")
    parser.add_argument("--out", type=Path, help=f"also write it here (a run folder's {FILE})")
    options = parser.parse_args(argv)
    setups = [default_setup(), best_known_setup()]
    if options.export:
        setups.append(export_setup(options.export))
    found = measure(options.model, options.workload, options.starts, options.rounds, setups)
    text = json.dumps(found)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


def measure(
    model: str, workload: str, starts: int, rounds: int, wanted: list[Setup]
) -> dict[str, Any]:
    """Every configuration, with its ratio to the others. Raises HostError in one line."""
    prepared = _prepared(model)
    setups = {setup.name: setup for setup in wanted}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in setups}
    with tempfile.TemporaryDirectory(prefix="perpetune-known-") as folder:
        batches = _batches(prepared, workload, rounds + 1, Path(folder))
        for number in range(starts):
            order = list(setups) if number % 2 == 0 else list(reversed(setups))
            for name in order:
                served = _one(setups[name], prepared, batches, Path(folder) / name)
                found[name].append(served)
                print(name, served, file=sys.stderr, flush=True)
    return _result(model, workload, setups, found)


def _prepared(model: str) -> dict[str, Any]:
    """The model's facts and its folder in the form that every server reads. Raises HostError."""
    command = [sys.executable, "-m", "engine_host.models", "prepare", model, "--hf"]
    command += ["--home", str(default_home())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise HostError(lines[-1].removeprefix("error: "))
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _batches(
    prepared: dict[str, Any], workload: str, count: int, folder: Path
) -> list[tuple[Request, ...]]:
    """Fresh closed-loop batches, the same for every start of this run."""
    blobs = DirectoryBlobs(folder / "blobs")
    tokenizer = blobs.put((Path(prepared["folder"]) / "tokenizer.json").read_bytes())
    content = ScriptMaker(blobs, folder / "tokens").content(tokenizer)
    context = int(prepared["facts"]["max_context"])
    asked = Workload(workload, params=CHAT if workload == "chat" else {})
    generator = make_generator(asked, content, context)
    draw = generator.fast if workload == "chat" else generator.slow
    return [draw("known", number).requests for number in range(count)]


def _one(
    setup: Setup, prepared: dict[str, Any], batches: list[tuple[Request, ...]], work: Path
) -> dict[str, Any]:
    """One start: the first batch untimed, the others timed."""
    with serving(setup, Path(prepared["hf_folder"]), work) as server:
        load(server, batches[0])
        rounds = [load(server, batch) for batch in batches[1:]]
        start_s = server.start_s
    names = ("output_tok_s", "ttft_ms_p50", "tpot_ms_p50")
    failed = sum(one["failed"] for one in rounds)
    if failed:
        raise HostError(f"{failed} requests failed on vLLM's {setup.name} server")
    return {
        "start_s": round(start_s, 1),
        **{name: round(median(one[name] for one in rounds), 2) for name in names},
        "requests": sum(one["requests"] for one in rounds),
    }


def _result(
    model: str,
    workload: str,
    setups: dict[str, Setup],
    found: dict[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    speeds = {name: median(s["output_tok_s"] for s in starts) for name, starts in found.items()}
    return {
        "what": "vllm serve, asked by one client over HTTP",
        "model": model,
        "workload": workload,
        "params": CHAT if workload == "chat" else {},
        "output_tok_s": {name: round(speed, 2) for name, speed in speeds.items()},
        "ratios": {
            f"{over}_over_{under}": round(speeds[over] / speeds[under], 3)
            for over, under in (
                ("best_known", "default"),
                ("release", "default"),
                ("release", "best_known"),
            )
            if over in speeds
        },
        "starts": found,
        "variables": {name: setup.variables for name, setup in setups.items()},
        "flags_of_all": " ".join(MEMORY),
        "tcmalloc": bool(tcmalloc()),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
