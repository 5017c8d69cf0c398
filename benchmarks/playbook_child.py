"""A process with torch and the weights, forked once a tree: builds the engine of the tree, prepares
it, serves, and says what came out. Reads one JSON job a line, answers one JSON line each.

Run as `python playbook_child.py <weights folder>` with libiomp5 preloaded; imports no room.
A job: {"tree": folder, "libraries": {name: path}, "precision": str, "prompts": [[int]],
"tokens": int, "rounds": int, "score": [{"prompt", "output"}]}.
"""

import gc
import importlib
import json
import os
import sys
import time
import traceback
from typing import Any


def measure(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Serve the job's first prompt, then all together; or score what it asks to."""
    sys.path.insert(0, job["tree"])
    slim = importlib.import_module("slim")  # the tree under test
    importlib.import_module("slim.native").PATHS.update(job.get("libraries", {}))
    engine = slim.Engine(slim.load_weights(folder), {}, job.get("precision", "bfloat16"))
    begun = time.perf_counter()
    for step in sorted(os.listdir(os.path.join(job["tree"], "slim", "prepare"))):
        if step.endswith(".py") and step != "__init__.py":
            importlib.import_module(f"slim.prepare.{step[:-3]}").prepare(engine)
    answer: dict[str, Any] = {"prepare_s": time.perf_counter() - begun}
    if "score" in job:
        answer["score"] = engine.score(job["score"])
        return answer
    for name, prompts in (("single", job["prompts"][:1]), ("together", job["prompts"])):
        served = [serve(engine, prompts, job["tokens"]) for _ in range(job["rounds"])]
        answer[name] = served[0][0]
        answer[f"{name}_tok_s"] = max(rate for _, rate in served)
    return answer


def serve(engine: Any, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], float]:
    """Greedy tokens of prompts served together, and how many were decoded a second.

    The clock runs from when every prompt has its first token.
    """
    for index, prompt in enumerate(prompts):
        engine.submit({"id": index, "prompt": prompt, "max_tokens": tokens})
    out: list[list[int]] = [[] for _ in prompts]
    while not all(out):
        take(engine, out)
    begun, before = time.perf_counter(), sum(map(len, out))
    while engine.busy():
        take(engine, out)
    seconds = time.perf_counter() - begun
    engine.reset()
    return out, (sum(map(len, out)) - before) / seconds


def take(engine: Any, out: list[list[int]]) -> None:
    """One step's tokens."""
    for output in engine.step():
        out[output["id"]] += output["tokens"]


def main() -> None:
    import torch

    # A parallel region before the fork, as in a resident engine.
    torch.ones(512, 512).mm(torch.ones(512, 512))
    gc.collect()
    folder = sys.argv[1]
    for line in sys.stdin:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                answer = measure(folder, json.loads(line))
            except BaseException as error:  # whatever ends a job is its answer
                place = traceback.extract_tb(error.__traceback__)[-1]
                answer = {
                    "error": f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
                }
            os.write(1, (json.dumps(answer) + "\n").encode())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            os.write(1, (json.dumps({"error": f"ended with status {status}"}) + "\n").encode())


if __name__ == "__main__":
    main()
