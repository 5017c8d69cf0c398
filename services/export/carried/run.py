"""Runs the exported engine on one prompt: the few lines that a program of your own needs.

python run.py MODEL_FOLDER [--prompt-ids 1,2,3] [--max-tokens 32] [--start]
"""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Print the output's token ids, and how fast they came."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="a prepared model: weights.bin, index.json, config.json")
    parser.add_argument("--prompt-ids", default="1,2,3", help="token ids, with commas")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--start", action="store_true", help="the engine as it was before")
    options = parser.parse_args()
    prompt = [int(word) for word in options.prompt_ids.split(",")]
    engine = build(options.model, options.start)
    generate(engine, prompt, 2)  # the first pass of a new engine is slower than the rest
    began = time.perf_counter()
    tokens = generate(engine, prompt, options.max_tokens)
    took_s = time.perf_counter() - began
    print(",".join(map(str, tokens)))
    print(f"{len(tokens)} tokens in {took_s:.3f} s: {len(tokens) / took_s:.1f} tok/s")


def build(model: str, start: bool) -> Any:
    """The engine around a prepared model, ready to serve."""
    facts = json.loads((HERE / "export.json").read_text(encoding="utf-8"))
    tree = HERE / ("start" if start else "tree")
    sys.path.insert(0, str(tree))
    name = facts["engine"]
    package = importlib.import_module(name)
    if facts["libraries"] and not start:
        native = importlib.import_module(f"{name}.native")
        native.PATHS.update({n: str(HERE / "lib" / f"lib{n}.so") for n in facts["libraries"]})
    knobs = facts["start_knobs" if start else "knobs"]
    engine = package.Engine(package.load_weights(model), knobs, facts["precision"])
    for path in sorted((tree / name / "prepare").glob("*.py")):
        module: Any = importlib.import_module(f"{name}.prepare.{path.stem}")
        if hasattr(module, "prepare"):
            module.prepare(engine)
    return engine


def generate(engine: Any, prompt: list[int], max_tokens: int) -> list[int]:
    """Greedy output of exactly `max_tokens` tokens."""
    engine.submit({"id": 0, "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True})
    tokens: list[int] = []
    while engine.busy():
        for output in engine.step():
            tokens += output["tokens"]
    return tokens


if __name__ == "__main__":
    main()
