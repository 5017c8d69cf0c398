"""One cold vLLM: start it with a candidate's files and knobs, time its blocks, print JSON, end.

Runs in vLLM's own environment, as a program of its own; imports nothing of Perpetune but the
engine's adapter, whose folder the job names.
"""

import importlib.abc
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

BEGAN_S = time.monotonic()


class Overlay(importlib.abc.MetaPathFinder):
    """Serves modules whose file lies in `folder` from there, before what is installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The spec of a module that the overlay holds."""
        file = self._folder / (fullname.replace(".", "/") + ".py")
        return importlib.util.spec_from_file_location(fullname, file) if file.is_file() else None


def main(job: dict[str, Any]) -> dict[str, Any]:
    """`output_tok_s`, tokens of every request, and the seconds to first tokens and in all."""
    sys.meta_path.insert(0, Overlay(Path(job["overlay"])))
    sys.path.insert(0, job["adapter"])
    importlib.import_module("vllm_adapter.early")
    adapter = importlib.import_module("vllm_adapter.engine")
    weights = importlib.import_module("vllm_adapter.weights").load_weights(job["weights"])
    engine = adapter.Engine(weights, job["knobs"])
    engine.rehearse()
    _serve(engine, [{"id": 0, "prompt": [1, 2, 3], "max_tokens": 1}])
    first_s = time.monotonic() - BEGAN_S
    for block in job["blocks"][:2]:
        _serve(engine, block)  # untimed: caches, buffers
    tokens: list[list[int]] = []
    timed_s = 0.0
    for block in job["blocks"]:
        engine.reset()
        began_s = time.monotonic()
        served = _serve(engine, block)
        timed_s += time.monotonic() - began_s
        tokens += served
    return {
        "output_tok_s": sum(map(len, tokens)) / timed_s,
        "tokens": tokens,
        "first_tokens_s": first_s,
        "timed_s": timed_s,
    }


def _serve(engine: Any, block: list[dict[str, Any]]) -> list[list[int]]:
    for request in block:
        engine.submit(request)
    found: dict[int, list[int]] = {request["id"]: [] for request in block}
    while engine.busy():
        for output in engine.step():
            found[output["id"]] += output["tokens"]
    return [found[request["id"]] for request in block]


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print(json.dumps(answer), flush=True)
    os._exit(0)  # threads of the libraries may not keep a finished measurement up
